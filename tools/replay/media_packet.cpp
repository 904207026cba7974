// The demuxer and decoder halves of media_track.hpp.
#include <algorithm>
#include <cstring>
#include <system_error>

#include "media_track.hpp"

namespace perceptd::replay {
namespace {

// Containers that hold their media themselves. Playlists and the like could make libav open other files.
constexpr const char* container_list =
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,wav,w64,aiff,flac,ogg,mp3,aac,caf";
constexpr std::int64_t pixels_max = 8192 * 8192;

bool matches(const AVStream& stream, PacketReader::Kind kind) {
    const AVCodecParameters& codec = *stream.codecpar;
    switch (kind) {
        case PacketReader::Kind::Video:
            return codec.codec_type == AVMEDIA_TYPE_VIDEO && (stream.disposition & AV_DISPOSITION_ATTACHED_PIC) == 0;
        case PacketReader::Kind::Audio: return codec.codec_type == AVMEDIA_TYPE_AUDIO;
        case PacketReader::Kind::Gpmf: return codec.codec_tag == MKTAG('g', 'p', 'm', 'd');
    }
    return false;
}

}  // namespace

std::optional<PacketReader> PacketReader::open(const std::filesystem::path& path, Kind kind) {
    PacketReader reader;
    reader.path_ = path.string();
    std::error_code error;
    const auto size_bytes = std::filesystem::file_size(path, error);
    if (error) {
        throw RecordingError(reader.path_ + ": " + error.message() + "; give the path of a readable media file");
    }
    if (size_bytes == 0) {
        throw RecordingError(reader.path_ + ": the file is empty; copy or record it again");
    }

    AVDictionary* options = nullptr;
    av_dict_set(&options, "format_whitelist", container_list, 0);
    av_dict_set(&options, "protocol_whitelist", "file", 0);
    AVFormatContext* format = nullptr;
    const int opened = avformat_open_input(&format, ("file:" + reader.path_).c_str(), nullptr, &options);
    av_dict_free(&options);
    if (opened < 0) {
        throw RecordingError(reader.path_ + ": not a complete media file (" + libav::reason_of(opened) +
                             "); give an MP4, MKV, AVI, WAV, FLAC or Ogg file, or copy it again if it was cut short");
    }
    reader.format_.reset(format);
    const int probed = avformat_find_stream_info(format, nullptr);
    if (probed < 0) {
        reader.fail("its streams cannot be read (" + libav::reason_of(probed) + "); copy or record it again");
    }
    for (unsigned i = 0; i < format->nb_streams; ++i) {
        AVStream* stream = format->streams[i];
        if (reader.stream_ == nullptr && matches(*stream, kind)) {
            reader.stream_ = stream;
        } else {
            stream->discard = AVDISCARD_ALL;
        }
    }
    if (reader.stream_ == nullptr) {
        return std::nullopt;
    }
    reader.packet_ = libav::make_packet();
    return reader;
}

AVPacket* PacketReader::next() {
    for (;;) {
        av_packet_unref(packet_.get());
        const int result = av_read_frame(format_.get(), packet_.get());
        if (result == AVERROR_EOF) {
            // An MP4 says beforehand how many packets it holds; a shorter file ends without an error.
            const int announced = avformat_index_get_entries_count(stream_);
            if (std::strstr(format_->iformat->name, "mp4") != nullptr && packet_count_ < announced) {
                fail("ends after " + std::to_string(packet_count_) + " of " + std::to_string(announced) +
                     " packets of stream " + std::to_string(stream_->index) + "; copy it again");
            }
            return nullptr;
        }
        if (result < 0) {
            fail("cannot be read further (" + libav::reason_of(result) + "); copy or record it again");
        }
        if (packet_->stream_index != stream_->index) {
            continue;
        }
        ++packet_count_;
        if ((packet_->flags & AV_PKT_FLAG_CORRUPT) != 0) {
            fail("packet " + std::to_string(packet_count_) + " of stream " + std::to_string(stream_->index) +
                 " is cut short or damaged; copy or record it again");
        }
        return packet_.get();
    }
}

std::int64_t PacketReader::to_ns(std::int64_t timestamp) const noexcept {
    return av_rescale_q(timestamp, stream_->time_base, AVRational{1, 1'000'000'000});
}

void PacketReader::fail(const std::string& reason) const {
    throw RecordingError(path_ + ": " + reason);
}

Decoder::Decoder(PacketReader reader) : reader_(std::move(reader)) {
    const AVCodecParameters* parameters = reader_.stream()->codecpar;
    const AVCodec* decoder = avcodec_find_decoder(parameters->codec_id);
    if (decoder == nullptr) {
        reader_.fail(std::string("this libavcodec has no decoder for ") + avcodec_get_name(parameters->codec_id) +
                     "; convert the file to H.264 with AAC");
    }
    codec_.reset(avcodec_alloc_context3(decoder));
    if (!codec_) {
        throw std::bad_alloc();
    }
    int result = avcodec_parameters_to_context(codec_.get(), parameters);
    if (result >= 0) {
        codec_->pkt_timebase = reader_.stream()->time_base;
        codec_->max_pixels = pixels_max;
        codec_->thread_count = 2;
        result = avcodec_open2(codec_.get(), decoder, nullptr);
    }
    if (result < 0) {
        reader_.fail(std::string("the ") + decoder->name + " decoder cannot start (" + libav::reason_of(result) +
                     "); copy or convert the file again");
    }
}

bool Decoder::next(AVFrame& frame) {
    for (;;) {
        const int received = avcodec_receive_frame(codec_.get(), &frame);
        if (received >= 0) {
            return true;
        }
        if (received == AVERROR_EOF) {
            return false;
        }
        if (received != AVERROR(EAGAIN) || draining_) {
            reader_.fail("cannot be decoded (" + libav::reason_of(received) + "); copy or record it again");
        }
        AVPacket* packet = reader_.next();
        draining_ = packet == nullptr;
        const int sent = avcodec_send_packet(codec_.get(), packet);
        if (sent < 0 && sent != AVERROR_EOF) {
            reader_.fail("a packet cannot be decoded (" + libav::reason_of(sent) + "); copy or record it again");
        }
    }
}

}  // namespace perceptd::replay

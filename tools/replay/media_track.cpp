#include "media_track.hpp"

extern "C" {
#include <libavutil/channel_layout.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
}

#include <algorithm>
#include <cstring>
#include <utility>

namespace perceptd::replay {
namespace {

constexpr int channels_max = 32;

double ratio_of(AVRational value) {
    return value.num > 0 && value.den > 0 ? av_q2d(value) : 0.0;
}

/// The deprecated full-range formats under their present names: the samples are passed on as stored, so that
/// swscale must not map full range to limited range.
AVPixelFormat plain_format(int format) {
    switch (format) {
        case AV_PIX_FMT_YUVJ420P: return AV_PIX_FMT_YUV420P;
        case AV_PIX_FMT_YUVJ422P: return AV_PIX_FMT_YUV422P;
        case AV_PIX_FMT_YUVJ440P: return AV_PIX_FMT_YUV440P;
        case AV_PIX_FMT_YUVJ444P: return AV_PIX_FMT_YUV444P;
        case AV_PIX_FMT_YUVJ411P: return AV_PIX_FMT_YUV411P;
        default: return AVPixelFormat(format);
    }
}

void copy_rows(const AVFrame& from, int plane, std::size_t row_bytes, std::size_t row_count, std::uint8_t* into,
               std::size_t stride_bytes) {
    for (std::size_t row = 0; row < row_count; ++row) {
        std::memcpy(into + row * stride_bytes, from.data[plane] + std::ptrdiff_t(row) * from.linesize[plane],
                    row_bytes);
    }
}

}  // namespace

VideoTrack::VideoTrack(PacketReader reader)
    : decoder_(std::move(reader)),
      head_(libav::make_frame()),
      current_(libav::make_frame()),
      converted_(libav::make_frame()) {
    const AVStream& stream = *decoder_.reader().stream();
    format_.rate_hz = ratio_of(stream.avg_frame_rate);
    if (format_.rate_hz == 0.0) {
        format_.rate_hz = ratio_of(stream.r_frame_rate);
    }
    if (!decoder_.next(*head_)) {
        decoder_.reader().fail("its video track holds no frame; copy or record it again");
    }
    format_.width_px = std::uint32_t(head_->width) & ~1u;
    format_.height_px = std::uint32_t(head_->height) & ~1u;
    if (format_.width_px == 0 || format_.height_px == 0) {
        decoder_.reader().fail("its frames are smaller than 2x2; give a recording of a camera");
    }
    converted_->format = AV_PIX_FMT_NV12;
    converted_->width = int(format_.width_px);
    converted_->height = int(format_.height_px);
    if (av_frame_get_buffer(converted_.get(), 0) < 0) {
        throw std::bad_alloc();
    }
    head_ns_ = 0;
    if (head_->best_effort_timestamp != AV_NOPTS_VALUE) {
        head_ns_ = decoder_.reader().to_ns(head_->best_effort_timestamp);
    }
}

void VideoTrack::advance() {
    if (!decoder_.next(*head_)) {
        head_ns_.reset();
        return;
    }
    if ((std::uint32_t(head_->width) & ~1u) != format_.width_px ||
        (std::uint32_t(head_->height) & ~1u) != format_.height_px) {
        decoder_.reader().fail("the frame size changes to " + std::to_string(head_->width) + "x" +
                               std::to_string(head_->height) + "; split the file where the size changes");
    }
    std::int64_t time_ns = *head_ns_ + (format_.rate_hz > 0 ? std::int64_t(1e9 / format_.rate_hz) : 0);
    if (head_->best_effort_timestamp != AV_NOPTS_VALUE) {
        time_ns = decoder_.reader().to_ns(head_->best_effort_timestamp);
    }
    head_ns_ = std::max(*head_ns_, time_ns);
}

Frame VideoTrack::take() {
    const Frame frame{*head_ns_, taken_count_++};
    av_frame_unref(current_.get());
    av_frame_move_ref(current_.get(), head_.get());
    advance();
    return frame;
}

void VideoTrack::write(std::span<std::uint8_t> into, std::size_t stride_bytes) {
    if (into.size() < frame_bytes(format_, stride_bytes)) {
        throw std::invalid_argument("a frame needs " + std::to_string(frame_bytes(format_, stride_bytes)) +
                                    " bytes, the caller gave " + std::to_string(into.size()));
    }
    const int width = int(format_.width_px);
    const int height = int(format_.height_px);
    const AVPixelFormat pixel_format = plain_format(current_->format);
    scaler_.reset(sws_getCachedContext(scaler_.release(), width, height, pixel_format, width, height, AV_PIX_FMT_NV12,
                                       SWS_BILINEAR, nullptr, nullptr, nullptr));
    // swscale writes whole vectors, so it gets a padded frame of its own rather than the caller's memory.
    if (!scaler_ || sws_scale(scaler_.get(), current_->data, current_->linesize, 0, height, converted_->data,
                              converted_->linesize) != height) {
        decoder_.reader().fail("a frame cannot be converted to NV12; convert the file to H.264 in yuv420p");
    }
    const std::size_t row_bytes = format_.width_px;
    copy_rows(*converted_, 0, row_bytes, format_.height_px, into.data(), stride_bytes);
    copy_rows(*converted_, 1, row_bytes, format_.height_px / 2, into.data() + stride_bytes * format_.height_px,
              stride_bytes);
}

AudioTrack::AudioTrack(PacketReader reader) : decoder_(std::move(reader)), frame_(libav::make_frame()) {
    decode(head_);
    if (!head_.filled) {
        decoder_.reader().fail("its sound track holds no sample; copy or record it again");
    }
    decode(ahead_);
}

std::optional<std::int64_t> AudioTrack::head_ns() const noexcept {
    return head_.filled ? std::optional(head_.time_ns) : std::nullopt;
}

void AudioTrack::convert(SwrContext* resampler, const AVFrame* frame, int channel_count,
                         std::vector<std::int16_t>& samples) {
    const int input_count = frame != nullptr ? frame->nb_samples : 0;
    const int room = swr_get_out_samples(resampler, input_count);
    if (room < 0) {
        decoder_.reader().fail("its sound cannot be converted (" + libav::reason_of(room) + "); convert it to AAC");
    }
    const std::size_t before = samples.size();
    samples.resize(before + std::size_t(room) * std::size_t(channel_count));
    auto* out = reinterpret_cast<std::uint8_t*>(samples.data() + before);
    const auto** in = frame != nullptr ? const_cast<const std::uint8_t**>(frame->extended_data) : nullptr;
    const int made = room == 0 ? 0 : swr_convert(resampler, &out, room, in, input_count);
    if (made < 0) {
        decoder_.reader().fail("its sound cannot be converted (" + libav::reason_of(made) + "); convert it to AAC");
    }
    samples.resize(before + std::size_t(made) * std::size_t(channel_count));
}

void AudioTrack::decode(Block& block) {
    block = Block{};
    do {
        if (!decoder_.next(*frame_)) {
            if (mono_ && head_.filled) {
                convert(mono_.get(), nullptr, 1, head_.mono);  // what the resampler held back joins the last block
                mono_.reset();
            }
            return;
        }
    } while (frame_->nb_samples == 0);
    if (!mono_) {
        const int channel_count = frame_->ch_layout.nb_channels;
        if (channel_count < 1 || channel_count > channels_max || frame_->sample_rate < 1000 ||
            frame_->sample_rate > 768000) {
            decoder_.reader().fail("has " + std::to_string(channel_count) + " channels at " +
                                   std::to_string(frame_->sample_rate) + "/s; convert it to stereo at 48000/s");
        }
        format_ = {std::uint32_t(frame_->sample_rate), std::uint32_t(channel_count)};
        sample_format_ = frame_->format;
        if (frame_->ch_layout.order == AV_CHANNEL_ORDER_NATIVE) {
            layout_ = frame_->ch_layout;
        } else {
            av_channel_layout_default(&layout_, channel_count);
        }
        const auto make = [&](AVChannelLayout out_layout, int out_rate_hz) {
            SwrContext* context = nullptr;
            int result = swr_alloc_set_opts2(&context, &out_layout, AV_SAMPLE_FMT_S16, out_rate_hz, &layout_,
                                             AVSampleFormat(sample_format_), frame_->sample_rate, 0, nullptr);
            libav::SwrContextPtr owner(context);
            if (result >= 0) {
                result = swr_init(context);
            }
            if (result < 0) {
                decoder_.reader().fail("its sound cannot be converted (" + libav::reason_of(result) +
                                       "); convert it to stereo AAC");
            }
            return owner;
        };
        AVChannelLayout mono_layout{};
        av_channel_layout_default(&mono_layout, 1);
        original_ = make(layout_, frame_->sample_rate);
        mono_ = make(mono_layout, int(mono_rate_hz));
    } else if (std::uint32_t(frame_->sample_rate) != format_.rate_hz || frame_->format != sample_format_ ||
               std::uint32_t(frame_->ch_layout.nb_channels) != format_.channel_count) {
        decoder_.reader().fail("the sound format changes within the file; split the file where it changes");
    }

    convert(original_.get(), frame_.get(), int(format_.channel_count), block.original);
    convert(mono_.get(), frame_.get(), 1, block.mono);
    block.first_frame = std::exchange(frame_count_, frame_count_ + block.original.size() / format_.channel_count);
    block.first_mono = std::exchange(mono_count_, mono_count_ + block.mono.size());
    // The sample count carries the time; the file's stamps are coarser and jitter.
    if (block.first_frame == 0 && frame_->best_effort_timestamp != AV_NOPTS_VALUE) {
        anchor_ns_ = decoder_.reader().to_ns(frame_->best_effort_timestamp);
    }
    block.time_ns = anchor_ns_ + av_rescale(std::int64_t(block.first_frame), 1'000'000'000, format_.rate_hz);
    block.filled = true;
}

AudioBlock AudioTrack::take() {
    std::swap(current_, head_);
    std::swap(head_, ahead_);
    if (head_.filled) {
        decode(ahead_);
    } else {
        ahead_ = Block{};
    }
    return {current_.time_ns, current_.first_frame, current_.first_mono, current_.original, current_.mono};
}

GpmfTrack::GpmfTrack(PacketReader reader) : reader_(std::move(reader)) {
    refill();
    if (!rows_.empty()) {
        format_.rate_hz = double(rows_.size()) * 1e9 / double(last_duration_ns_);
    }
}

std::optional<std::int64_t> GpmfTrack::head_ns() const noexcept {
    return position_ < rows_.size() ? std::optional(rows_[position_].time_ns) : std::nullopt;
}

ImuRow GpmfTrack::take() {
    const ImuRow row = rows_[position_++];
    if (position_ == rows_.size()) {
        refill();
        if (!rows_.empty()) {
            rows_.front().time_ns = std::max(rows_.front().time_ns, row.time_ns);
        }
    }
    return row;
}

void GpmfTrack::refill() {
    rows_.clear();
    position_ = 0;
    while (rows_.empty()) {
        const AVPacket* packet = reader_.next();
        if (packet == nullptr) {
            return;
        }
        GpmfPacket parsed;
        try {
            parsed = parse_gpmf({packet->data, std::size_t(packet->size)});
        } catch (const RecordingError& error) {
            reader_.fail(error.what());
        }
        if (packet->pts == AV_NOPTS_VALUE) {
            reader_.fail("a telemetry packet has no time; export the recording again");
        }
        if (packet->duration > 0) {
            last_duration_ns_ = reader_.to_ns(packet->duration);
        }
        append_rows(parsed, reader_.to_ns(packet->pts), last_duration_ns_, rows_);
    }
}

}  // namespace perceptd::replay

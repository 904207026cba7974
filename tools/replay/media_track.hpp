// The three kinds of track of a media file, each read and decoded lazily, one event ahead of the caller.
// Each track owns its demuxer, decoder and the head event; times are nanoseconds on the file's own time axis.
// Never mixes tracks: putting them in time order is the recording's business.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpmf.hpp"
#include "libav.hpp"
#include "recording.hpp"

namespace perceptd::replay {

/// The packets of one stream of a file. Thread-bound.
class PacketReader {
public:
    enum class Kind { Video, Audio, Gpmf };

    /// Empty where the file has no such stream. Throws RecordingError where the file cannot be read.
    static std::optional<PacketReader> open(const std::filesystem::path& path, Kind kind);

    /// The next packet, owned by the reader until the next call; nullptr = the end. Throws RecordingError on damage.
    [[nodiscard]] AVPacket* next();

    [[nodiscard]] AVStream* stream() const noexcept { return stream_; }
    [[nodiscard]] std::int64_t to_ns(std::int64_t timestamp) const noexcept;
    [[noreturn]] void fail(const std::string& reason) const;

private:
    PacketReader() = default;

    std::string path_;
    libav::FormatContext format_;
    libav::Packet packet_;
    AVStream* stream_ = nullptr;
    std::int64_t packet_count_ = 0;
};

/// Decoded frames of one stream. Thread-bound.
class Decoder {
public:
    explicit Decoder(PacketReader reader);

    /// Decodes the next frame into `frame`; false = the end. Throws RecordingError on damage.
    [[nodiscard]] bool next(AVFrame& frame);

    [[nodiscard]] const PacketReader& reader() const noexcept { return reader_; }
    [[nodiscard]] const AVCodecContext& context() const noexcept { return *codec_; }

private:
    PacketReader reader_;
    libav::CodecContext codec_;
    bool draining_ = false;
};

/// The camera. The head frame is decoded; take() makes it the current one.
class VideoTrack {
public:
    explicit VideoTrack(PacketReader reader);

    [[nodiscard]] const CameraFormat& format() const noexcept { return format_; }
    [[nodiscard]] std::optional<std::int64_t> head_ns() const noexcept { return head_ns_; }
    Frame take();
    void write(std::span<std::uint8_t> into, std::size_t stride_bytes);

private:
    void advance();

    Decoder decoder_;
    CameraFormat format_;
    libav::Frame head_, current_, converted_;
    libav::SwsContextPtr scaler_;
    std::optional<std::int64_t> head_ns_;
    std::uint64_t taken_count_ = 0;
};

/// The sound. Decoding runs one block ahead, so that the last block carries what the resampler held back.
class AudioTrack {
public:
    explicit AudioTrack(PacketReader reader);

    [[nodiscard]] const AudioFormat& format() const noexcept { return format_; }
    [[nodiscard]] std::optional<std::int64_t> head_ns() const noexcept;
    [[nodiscard]] std::uint64_t head_first_frame() const noexcept { return head_.first_frame; }
    AudioBlock take();

private:
    struct Block {
        std::int64_t time_ns = 0;
        std::uint64_t first_frame = 0, first_mono = 0;
        std::vector<std::int16_t> original, mono;
        bool filled = false;
    };
    void decode(Block& block);
    void convert(SwrContext* resampler, const AVFrame* frame, int channel_count, std::vector<std::int16_t>& samples);

    Decoder decoder_;
    AudioFormat format_;
    AVChannelLayout layout_{};  // copy of a native-order mask, owns nothing
    int sample_format_ = -1;
    libav::Frame frame_;
    libav::SwrContextPtr original_, mono_;
    Block current_, head_, ahead_;
    std::uint64_t frame_count_ = 0, mono_count_ = 0;
    std::int64_t anchor_ns_ = 0;
};

/// The inertial unit of a GoPro telemetry track.
class GpmfTrack {
public:
    explicit GpmfTrack(PacketReader reader);

    [[nodiscard]] const ImuFormat& format() const noexcept { return format_; }
    [[nodiscard]] std::optional<std::int64_t> head_ns() const noexcept;
    ImuRow take();

private:
    void refill();

    PacketReader reader_;
    ImuFormat format_;
    std::vector<ImuRow> rows_;
    std::size_t position_ = 0;
    std::int64_t last_duration_ns_ = 1'001'000'000;
};

}  // namespace perceptd::replay

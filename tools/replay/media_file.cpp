#include "media_file.hpp"

#include <algorithm>
#include <limits>

#include "media_track.hpp"

namespace perceptd::replay {
namespace {

class MediaFile final : public Recording {
public:
    explicit MediaFile(const std::filesystem::path& path) {
        using Kind = PacketReader::Kind;
        if (auto reader = PacketReader::open(path, Kind::Video)) {
            video_ = std::make_unique<VideoTrack>(std::move(*reader));
        }
        if (auto reader = PacketReader::open(path, Kind::Audio)) {
            audio_ = std::make_unique<AudioTrack>(std::move(*reader));
        }
        if (auto reader = PacketReader::open(path, Kind::Gpmf)) {
            imu_ = std::make_unique<GpmfTrack>(std::move(*reader));
            if (!imu_->head_ns()) {
                imu_.reset();  // telemetry without accelerometer and gyro, such as GPS alone
            }
        }
        if (!video_ && !audio_ && !imu_) {
            throw RecordingError(path.string() + ": holds neither video, sound nor GPMF telemetry; give a recording");
        }
        start_ns_ = earliest_ns();
    }

    std::optional<CameraFormat> camera() const override {
        return video_ ? std::optional(video_->format()) : std::nullopt;
    }
    std::optional<AudioFormat> audio() const override {
        return audio_ ? std::optional(audio_->format()) : std::nullopt;
    }
    std::optional<ImuFormat> imu() const override { return imu_ ? std::optional(imu_->format()) : std::nullopt; }

    std::optional<Event> next() override {
        has_frame_ = false;
        const std::int64_t time_ns = earliest_ns();
        if (time_ns == end_ns) {
            return std::nullopt;
        }
        if (imu_ && imu_->head_ns() == time_ns) {
            return restamped(imu_->take());
        }
        if (audio_ && audio_->head_ns() == time_ns) {
            return restamped(audio_->take());
        }
        has_frame_ = true;
        return restamped(video_->take());
    }

    void write_frame(std::span<std::uint8_t> into, std::size_t stride_bytes) override {
        if (!has_frame_) {
            throw std::logic_error("write_frame() without a frame from next()");
        }
        video_->write(into, stride_bytes);
    }

private:
    static constexpr std::int64_t end_ns = std::numeric_limits<std::int64_t>::max();

    std::int64_t earliest_ns() const {
        std::int64_t earliest = end_ns;
        earliest = std::min(earliest, video_ ? video_->head_ns().value_or(end_ns) : end_ns);
        earliest = std::min(earliest, audio_ ? audio_->head_ns().value_or(end_ns) : end_ns);
        return std::min(earliest, imu_ ? imu_->head_ns().value_or(end_ns) : end_ns);
    }

    template <typename Kind>
    Event restamped(Kind event) const {
        event.time_ns -= start_ns_;
        return event;
    }

    std::unique_ptr<VideoTrack> video_;
    std::unique_ptr<AudioTrack> audio_;
    std::unique_ptr<GpmfTrack> imu_;
    std::int64_t start_ns_ = 0;
    bool has_frame_ = false;
};

}  // namespace

std::unique_ptr<Recording> open_media_file(const std::filesystem::path& path) {
    av_log_set_level(AV_LOG_FATAL);  // what matters reaches the caller as an exception
    return std::make_unique<MediaFile>(path);
}

}  // namespace perceptd::replay

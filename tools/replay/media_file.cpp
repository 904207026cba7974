#include "media_file.hpp"

#include "media_track.hpp"
#include "merged_recording.hpp"

namespace perceptd::replay {
namespace {

template <typename Track>
std::unique_ptr<Track> open_track(const std::filesystem::path& path, PacketReader::Kind kind) {
    auto reader = PacketReader::open(path, kind);
    return reader ? std::make_unique<Track>(std::move(*reader)) : nullptr;
}

}  // namespace

std::unique_ptr<Recording> open_media_file(const std::filesystem::path& path) {
    av_log_set_level(AV_LOG_FATAL);  // what matters reaches the caller as an exception
    using Kind = PacketReader::Kind;
    auto video = open_track<VideoTrack>(path, Kind::Video);
    auto audio = open_track<AudioTrack>(path, Kind::Audio);
    auto imu = open_track<GpmfTrack>(path, Kind::Gpmf);
    if (imu && !imu->head_ns()) {
        imu.reset();  // telemetry without accelerometer and gyro, such as GPS alone
    }
    if (!video && !audio && !imu) {
        throw RecordingError(path.string() + ": holds neither video, sound nor GPMF telemetry; give a recording");
    }
    return std::make_unique<MergedRecording<VideoTrack, AudioTrack, GpmfTrack>>(std::move(video), std::move(audio),
                                                                                std::move(imu));
}

}  // namespace perceptd::replay

// Reader of one media file (MP4, MKV, WAV, ...): video to NV12, sound to int16, a GoPro telemetry track to IMU rows.
// Owns one track reader per kind, each with its own demuxer, so badly interleaved files need no queues.
// Never seeks or writes, and applies no display rotation.
#pragma once

#include <filesystem>
#include <memory>

#include "recording.hpp"

namespace perceptd::replay {

/// Opens a media file. Throws RecordingError where it holds none of the three kinds or cannot be decoded.
[[nodiscard]] std::unique_ptr<Recording> open_media_file(const std::filesystem::path& path);

}  // namespace perceptd::replay

#include "sensor/feed_check.hpp"

#include <cmath>
#include <cstring>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace perceptd::sensor {
namespace {

constexpr std::int64_t kRangeNs = std::int64_t{1} << 61;
constexpr std::int64_t kLongestStepNs = 3600 * kNsPerSecond;
constexpr std::int64_t kAheadNs = kNsPerSecond;
constexpr std::int64_t kBehindNs = 60 * kNsPerSecond;
constexpr std::uint64_t kLongestStream = std::uint64_t{1} << 48;  // samples: centuries
constexpr float kAccelMaxMps2 = 4000;                             // four hundred times gravity
constexpr float kGyroMaxRadps = 1000;

void demand(bool is_met, const std::string& text) {
    if (!is_met) {
        throw Error(ErrorCode::InvalidArgument, "Provide: " + text);
    }
}

bool is_within(double value, double min, double max) {
    return std::isfinite(value) && value >= min && value <= max;
}

}  // namespace

void check_offer(const Offer& offer) {
    demand(!offer.origin.empty() && offer.origin.size() <= 128, "origin must have 1 to 128 bytes; name the recording");
    demand(offer.camera || offer.audio || offer.imu, "nothing is offered; offer camera, microphone or IMU");
    if (const auto& camera = offer.camera) {
        demand(camera->width_px >= 16 && camera->width_px <= 8192 && camera->width_px % 2 == 0 &&
                   camera->height_px >= 16 && camera->height_px <= 8192 && camera->height_px % 2 == 0,
               "camera sides must be even and 16 to 8192 px; scale the picture");
        demand(camera->stride_bytes >= camera->width_px && camera->stride_bytes <= 2 * 8192,
               "the camera's stride must be the width to 16384 bytes");
        demand(is_within(camera->rate_hz, 0.1, 1000), "camera rate must be 0.1 to 1000 Hz");
    }
    if (const auto& audio = offer.audio) {
        demand(audio->rate_hz >= 8000 && audio->rate_hz <= 192'000, "sound rate must be 8000 to 192000 Hz");
        demand(audio->channel_count >= 1 && audio->channel_count <= 8, "sound has 1 to 8 channels");
        demand(audio->block_frames >= 16 && audio->block_frames <= 16'384, "sound blocks hold 16 to 16384 frames");
    }
    if (const auto& imu = offer.imu) {
        demand(is_within(imu->rate_hz, 1, 10'000), "IMU rate must be 1 to 10000 Hz");
    }
}

bool StreamCheck::accept_time(std::int64_t hub_ns, const StampLimits& limits) noexcept {
    // The range first: inside it no difference below can overflow.
    if (hub_ns <= 0 || hub_ns >= kRangeNs || hub_ns < hub_ns_) {
        return false;
    }
    const bool is_near = limits.is_live ? hub_ns - limits.now_ns <= kAheadNs && limits.now_ns - hub_ns <= kBehindNs
                                        : hub_ns - limits.newest_hub_ns <= kLongestStepNs &&
                                              limits.newest_hub_ns - hub_ns <= kLongestStepNs;
    if (is_near) {
        hub_ns_ = hub_ns;
    }
    return is_near;
}

bool StreamCheck::accept(const percept_feed_record& record, const StampLimits& limits) noexcept {
    if (record.sensor_ns <= -kRangeNs || record.sensor_ns >= kRangeNs || record.sequence >= kLongestStream ||
        record.sequence < next_sequence_ || (has_sample_ && record.sensor_ns <= sensor_ns_) ||
        (has_sample_ && record.hub_ns == hub_ns_ && limits.is_live == false) || !accept_time(record.hub_ns, limits)) {
        return false;
    }
    has_jumped_ = record.sequence != next_sequence_;
    has_sample_ = true;
    sensor_ns_ = record.sensor_ns;
    next_sequence_ = record.sequence + 1;
    return true;
}

bool is_frame_good(std::uint32_t bytes_used, const CameraFormat& format) noexcept {
    return bytes_used == std::uint64_t{format.stride_bytes} * format.height_px * 3 / 2;
}

bool is_sound_good(std::span<const std::byte> slot, std::uint32_t bytes_used, const AudioFormat& format) noexcept {
    percept_audio_block block;
    if (bytes_used < sizeof(block) || bytes_used > slot.size()) {
        return false;
    }
    std::memcpy(&block, slot.data(), sizeof(block));
    const auto lies_inside = [bytes_used](std::uint32_t offset_bytes, std::uint64_t size_bytes) {
        return offset_bytes % alignof(std::int16_t) == 0 && offset_bytes >= sizeof(block) &&
               offset_bytes <= bytes_used && size_bytes <= bytes_used - offset_bytes;
    };
    const std::uint64_t original_bytes = std::uint64_t{block.frame_count} * format.channel_count * sizeof(std::int16_t);
    const std::uint64_t mono_bytes = std::uint64_t{block.mono_count} * sizeof(std::int16_t);
    return block.rate_hz == format.rate_hz && block.channel_count == format.channel_count &&
           block.frame_count <= format.block_frames && block.first_frame < kLongestStream &&
           block.first_mono < kLongestStream && lies_inside(block.original_offset_bytes, original_bytes) &&
           lies_inside(block.mono_offset_bytes, mono_bytes);
}

bool is_motion_good(const percept_feed_record& record) noexcept {
    constexpr std::uint32_t kKnown = PERCEPT_IMU_ACCEL | PERCEPT_IMU_GYRO | PERCEPT_IMU_SATURATED;
    if ((record.imu_flags & ~kKnown) != 0 || (record.imu_flags & (PERCEPT_IMU_ACCEL | PERCEPT_IMU_GYRO)) == 0) {
        return false;
    }
    for (int axis = 0; axis < 3; ++axis) {
        // Written so that a NaN fails.
        if (!(std::abs(record.accel_mps2[axis]) <= kAccelMaxMps2) ||
            !(std::abs(record.gyro_radps[axis]) <= kGyroMaxRadps)) {
            return false;
        }
    }
    return true;
}

}  // namespace perceptd::sensor

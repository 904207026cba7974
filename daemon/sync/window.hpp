// One closed span of hub time and what it holds: the record that goes from the aligner to the token stages.
// Owns nothing: the frame's slot is named, its lease count travels with the record.
// Never holds payload bytes, never changes after it was closed.
#pragma once

#include <cstdint>

#include "sensor/sample.hpp"

namespace perceptd::sync {

enum WindowFlag : std::uint32_t {
    kMissingVideo = 1,  ///< a camera exists but no frame opened this window
    kPartialAudio = 2,  ///< closed before the sound up to t1 + 12.5 ms was in, or the sound had ended
    kImuGap = 4,        ///< closed before the motion rows up to t1 were in, or they had ended
    kEpoch = 8,         ///< a clock map broke its continuity at t1 or within
    kTick = 16,         ///< opened by the nominal rate instead of a frame
};

enum class CloseReason : std::uint8_t {
    Complete,  ///< every stream's watermark passed
    Deadline,  ///< live: waited long enough
    End,       ///< every stream is over
};

/// Fixed size, trivially copyable. Exactly one window owns each hub time: own_from_ns <= t < own_to_ns.
struct WindowPlan {
    std::uint64_t id = 0;  ///< from 0, without holes
    std::int64_t t0_ns = 0;
    std::int64_t t1_ns = 0;
    std::int64_t own_from_ns = 0;       ///< t0_ns; the first window: INT64_MIN
    std::int64_t own_to_ns = 0;         ///< t1_ns; the last window: INT64_MAX
    std::int64_t added_latency_ns = 0;  ///< live: close time minus t1_ns; else 0
    sensor::Sample frame;               ///< valid when has_frame
    bool has_frame = false;
    bool last = false;
    CloseReason close_reason = CloseReason::Complete;
    std::uint32_t flags = 0;  ///< WindowFlag
    std::uint32_t epoch = 0;

    /// Whether an item at `hub_ns` (mel slice: its centre; IMU row: its time) belongs here.
    [[nodiscard]] bool owns(std::int64_t hub_ns) const noexcept {
        return hub_ns >= own_from_ns && (hub_ns < own_to_ns || own_to_ns == INT64_MAX);
    }
};

}  // namespace perceptd::sync

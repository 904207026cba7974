// What a provider may say: the limits of an offer and of one record, apart from the ring that carries it.
// Owns, per stream, the last stamps that were accepted.
// Never touches shared memory: it judges copies.
#pragma once

#include <cstdint>
#include <span>

#include "percept_layout.h"
#include "sensor/source.hpp"

namespace perceptd::sensor {

/// Throws Error(InvalidArgument) naming what is out of range and what the range is.
void check_offer(const Offer& offer);

/// Time limits of a run.
struct StampLimits {
    bool is_live = true;
    std::int64_t now_ns = 0;         ///< hub time
    std::int64_t newest_hub_ns = 0;  ///< the newest accepted stamp of any stream, or the run's start
};

/// The order of one stream's stamps. Thread-bound; real-time.
class StreamCheck {
public:
    /// True and remembered when `record`'s stamps follow the last ones: both grow, the sequence grows, and the hub
    /// stamp is no more than an hour (a live sensor: a second ahead, a minute behind now) away.
    [[nodiscard]] bool accept(const percept_feed_record& record, const StampLimits& limits) noexcept;
    /// A mark's or end's hub stamp: not before the last one, and no absurd step.
    [[nodiscard]] bool accept_time(std::int64_t hub_ns, const StampLimits& limits) noexcept;
    /// Samples are missing before the one that was accepted last.
    [[nodiscard]] bool has_jumped() const noexcept { return has_jumped_; }
    [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
    void end() noexcept { has_ended_ = true; }

private:
    bool has_sample_ = false;
    bool has_ended_ = false;
    bool has_jumped_ = false;
    std::int64_t sensor_ns_ = 0;
    std::int64_t hub_ns_ = INT64_MIN;
    std::uint64_t next_sequence_ = 0;
};

/// A frame's bytes_used fits the format.
[[nodiscard]] bool is_frame_good(std::uint32_t bytes_used, const CameraFormat& format) noexcept;
/// The block at the start of `slot` (copied here) fits the format and lies within bytes_used.
[[nodiscard]] bool is_sound_good(std::span<const std::byte> slot, std::uint32_t bytes_used,
                                 const AudioFormat& format) noexcept;
/// Known flags, finite and physically possible readings.
[[nodiscard]] bool is_motion_good(const percept_feed_record& record) noexcept;

}  // namespace perceptd::sensor

// Whether a sensor really delivers: a verdict from what its stream has done and when.
// Owns nothing.
// Never says "streaming" while nothing arrives, and never looks at the device.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "sensor/source.hpp"

namespace perceptd::sensor {

inline constexpr std::int64_t kFirstSampleNs = 2 * kNsPerSecond;  ///< a sensor that was switched on delivers by then
inline constexpr std::int64_t kSilenceNs = kNsPerSecond;          ///< a stream that pauses for longer is silent

/// The values of org.perceptd1.Sensor.Health.
enum class Health : std::uint8_t {
    Off,
    Starting,
    Streaming,
    Silent,  ///< samples came once and come no more
    Failed,  ///< no sample came by the deadline
};
const char* name_of(Health health) noexcept;

/// The verdict at `now_ns` on a stream that was switched on at `on_since_ns` (hub time; 0 = it is off). A recording has
/// its own time and waits for its readers, so that only its first sample counts.
Health health_of(std::int64_t on_since_ns, bool is_live, const StreamCounters& counters, std::int64_t now_ns) noexcept;

}  // namespace perceptd::sensor

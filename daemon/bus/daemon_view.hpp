// What the bus objects show of the daemon; declared here and implemented by it, so that this stage never includes it.
// Owns nothing.
// Never changes anything: what clients may do goes through sessions.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sensor/health.hpp"
#include "sensor/sample.hpp"
#include "session/registry.hpp"

namespace perceptd::bus {

/// One sensor at one moment.
struct SensorState {
    std::string origin;
    std::variant<sensor::CameraFormat, sensor::AudioFormat, sensor::ImuFormat> format;
    sensor::Health health = sensor::Health::Off;
    std::uint32_t session_count = 0;
    std::int64_t captured_at_ns = 0;  ///< hub time; 0 = none yet
    std::uint64_t delivered_count = 0;
    std::uint64_t dropped_no_slot_count = 0;
    std::uint64_t dropped_queue_full_count = 0;
    std::uint64_t gap_count = 0;
    std::uint64_t invalid_count = 0;
};

/// Threads: everything on the main thread.
class DaemonView {
public:
    virtual ~DaemonView() = default;
    /// The kinds that are present; the same for the daemon's whole life.
    [[nodiscard]] virtual std::vector<sensor::Kind> sensors() const = 0;
    /// `kind` is one of sensors().
    [[nodiscard]] virtual SensorState sensor_state(sensor::Kind kind) const = 0;
    [[nodiscard]] virtual session::Registry& sessions() noexcept = 0;
    /// The effective configuration as JSON text.
    [[nodiscard]] virtual std::string configuration() const = 0;
};

/// "camera", "microphone" or "imu": the word of the bus for a kind.
const char* word_of(sensor::Kind kind) noexcept;
/// The words of a set, in the order of the kinds.
std::vector<std::string> words_of(session::SensorSet sensors);

}  // namespace perceptd::bus

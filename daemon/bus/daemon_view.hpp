// What the bus objects show of the daemon; declared here and implemented by it, so that this stage never includes it.
// Owns nothing.
// Never changes anything: what clients may do goes through sessions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "sensor/health.hpp"
#include "sensor/sample.hpp"
#include "session/registry.hpp"
#include "store/store.hpp"

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
    /// The kinds that are present now: the built-in ones, and those of providers while they serve.
    [[nodiscard]] virtual std::vector<sensor::Kind> sensors() const = 0;
    /// `handler` is called after each change of sensors(), in the same turn of the loop.
    virtual void on_sensors_changed(std::function<void()> handler) = 0;
    /// Throws Error(SensorUnavailable) for a kind that is not present.
    [[nodiscard]] virtual SensorState sensor_state(sensor::Kind kind) const = 0;
    [[nodiscard]] virtual session::Registry& sessions() noexcept = 0;
    /// The effective configuration as JSON text.
    [[nodiscard]] virtual std::string configuration() const = 0;
    /// Where the ledger and kept answers are.
    [[nodiscard]] virtual store::Store& store() noexcept = 0;
};

/// The words of a set, in the order of the kinds.
std::vector<std::string> words_of(session::SensorSet sensors);

}  // namespace perceptd::bus

// /org/perceptd1/sensor/<name>: one sensor on the bus, as proto/org.perceptd1.Sensor.xml describes it.
// Owns the registration on the bus.
// Never touches the sensor.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <cstdint>
#include <memory>
#include <string>

#include "bus/connection.hpp"
#include "bus/daemon_view.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). `connection` and `daemon` must outlive it.
class SensorObject {
public:
    /// Announces the object. `kind` is present.
    SensorObject(Connection& connection, const DaemonView& daemon, sensor::Kind kind);
    /// Takes the object from the bus, where a sensor that is not present has none.
    ~SensorObject();
    SensorObject(const SensorObject&) = delete;
    SensorObject& operator=(const SensorObject&) = delete;

    [[nodiscard]] sensor::Kind kind() const noexcept { return kind_; }
    /// The object's path on the bus.
    [[nodiscard]] static std::string path_of(sensor::Kind kind);
    /// Announces what has changed since the last call. True while the sensor is on, so that the next change is near.
    bool publish();

private:
    Connection& connection_;
    const DaemonView& daemon_;
    sensor::Kind kind_;
    sensor::Health shown_health_ = sensor::Health::Off;
    std::uint32_t shown_session_count_ = 0;
    std::unique_ptr<sdbus::IObject> object_;
};

}  // namespace perceptd::bus

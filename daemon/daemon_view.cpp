// What the daemon shows of itself on the bus.
#include <algorithm>
#include <iterator>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "daemon.hpp"

namespace perceptd {

using sensor::Kind;

std::vector<Kind> Daemon::sensors() const {
    std::vector<Kind> kinds;
    std::copy_if(sensor::kKinds.begin(), sensor::kKinds.end(), std::back_inserter(kinds),
                 [this](Kind kind) { return bank_.has(kind); });
    return kinds;
}

bus::SensorState Daemon::sensor_state(Kind kind) const {
    if (!bank_.has(kind)) {
        throw Error(ErrorCode::SensorUnavailable, bank_.absence_of(kind));
    }
    const sensor::Offer& offer = bank_.source(kind)->offer();
    const sensor::StreamCounters& counters = bank_.source(kind)->counters(kind);
    bus::SensorState state;
    state.origin = offer.origin;
    switch (kind) {
        case Kind::Camera: state.format = offer.camera.value(); break;
        case Kind::Microphone: state.format = offer.audio.value(); break;
        case Kind::Imu: state.format = offer.imu.value(); break;
    }
    state.session_count = holders_[sensor::index_of(kind)];
    const std::int64_t on_since_ns = held(kind) && pipeline_ ? sensing_since_ns_ : 0;
    state.health = sensor::health_of(on_since_ns, offer.is_live, counters, monotonic_ns());
    if (state.health == sensor::Health::Off) {
        return state;  // what an earlier run counted is over
    }
    const auto load = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
    state.captured_at_ns = load(counters.last_at_ns);
    state.delivered_count = load(counters.delivered_count);
    state.dropped_no_slot_count = load(counters.dropped_no_slot_count);
    state.dropped_queue_full_count = load(counters.dropped_queue_full_count);
    state.gap_count = load(counters.gap_count);
    state.invalid_count = load(counters.invalid_count);
    return state;
}

std::uint64_t Daemon::heartbeat_count() const noexcept {
    return pipeline_ ? pipeline_->counters().heartbeat_count.load(std::memory_order_relaxed) : 0;
}

}  // namespace perceptd

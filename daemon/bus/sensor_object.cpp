#include "bus/sensor_object.hpp"

#include <map>
#include <vector>

#include "bus/interface.hpp"

namespace perceptd::bus {
namespace {

constexpr const char* kSensor = "org.perceptd1.Sensor";

using Format = std::map<std::string, sdbus::Variant>;

Format format_of(const sensor::CameraFormat& format) {
    return {{"width_px", format.width_px},
            {"height_px", format.height_px},
            {"stride_bytes", format.stride_bytes},
            {"rate_hz", format.rate_hz}};
}
Format format_of(const sensor::AudioFormat& format) {
    return {
        {"rate_hz", format.rate_hz}, {"channel_count", format.channel_count}, {"block_frames", format.block_frames}};
}
Format format_of(const sensor::ImuFormat& format) {
    return {{"rate_hz", format.rate_hz}};
}

std::map<std::string, std::uint64_t> counters_of(const SensorState& state) {
    return {{"delivered", state.delivered_count},
            {"dropped_no_slot", state.dropped_no_slot_count},
            {"dropped_queue_full", state.dropped_queue_full_count},
            {"gaps", state.gap_count},
            {"invalid", state.invalid_count}};
}

}  // namespace

std::vector<std::string> words_of(session::SensorSet sensors) {
    std::vector<std::string> words;
    for (const sensor::Kind kind : sensor::kKinds) {
        if (sensors.has(kind)) {
            words.emplace_back(word_of(kind));
        }
    }
    return words;
}

std::string SensorObject::path_of(sensor::Kind kind) {
    return std::string(kRootPath) + "/sensor/" + word_of(kind);
}

SensorObject::SensorObject(Connection& connection, const DaemonView& daemon, sensor::Kind kind)
    : connection_(connection),
      daemon_(daemon),
      kind_(kind),
      object_(sdbus::createObject(connection.native(), path_of(kind))) {
    const auto state = [this] { return daemon_.sensor_state(kind_); };
    Interface sensor(*object_, kSensor);
    sensor.property("Kind", Emits::Const, [this] { return std::string(word_of(kind_)); });
    sensor.property("Origin", Emits::Change, [state] { return state().origin; });
    sensor.property("Format", Emits::Change, [state] {
        return std::visit([](const auto& format) { return format_of(format); }, state().format);
    });
    sensor.property("Health", Emits::Change, [state] { return std::string(name_of(state().health)); });
    sensor.property("SessionCount", Emits::Change, [state] { return state().session_count; });
    sensor.property("CapturedAt", Emits::Nothing, [state] { return state().captured_at_ns; });
    sensor.property("Counters", Emits::Nothing, [state] { return counters_of(state()); });
    object_->finishRegistration();
    object_->emitInterfacesAddedSignal();
}

SensorObject::~SensorObject() {
    if (connection_.is_open()) {
        guard_event("announcing a sensor's end", [this] { object_->emitInterfacesRemovedSignal(); });
    }
}

bool SensorObject::publish() {
    const SensorState state = daemon_.sensor_state(kind_);
    std::vector<std::string> changed;
    if (state.health != shown_health_) {
        shown_health_ = state.health;
        changed.emplace_back("Health");
    }
    if (state.session_count != shown_session_count_) {
        shown_session_count_ = state.session_count;
        changed.emplace_back("SessionCount");
    }
    if (!changed.empty() && connection_.is_open()) {
        object_->emitPropertiesChangedSignal(kSensor, changed);
    }
    return state.health != sensor::Health::Off;
}

}  // namespace perceptd::bus

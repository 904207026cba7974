#include "session/actions.hpp"

namespace perceptd::session {
namespace {

const char* action_of(sensor::Kind kind) noexcept {
    switch (kind) {
        case sensor::Kind::Camera: return "org.perceptd1.use-camera";
        case sensor::Kind::Microphone: return "org.perceptd1.use-microphone";
        case sensor::Kind::Imu: return "org.perceptd1.use-imu";
    }
    return "org.perceptd1.unknown";
}

}  // namespace

std::vector<std::string> actions_of(SensorSet sensors) {
    std::vector<std::string> actions;
    for (const sensor::Kind kind : sensor::kKinds) {
        if (sensors.has(kind)) {
            actions.emplace_back(action_of(kind));
        }
    }
    return actions;
}

}  // namespace perceptd::session

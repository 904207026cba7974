// The polkit actions that a session may need: systemd/org.perceptd1.policy describes them.
// Owns nothing.
// Never decides: an Authority does.
#pragma once

#include <string>
#include <vector>

#include "session/delivery.hpp"

namespace perceptd::session {

/// To bring in sensors of another program, and to end other people's sessions.
inline constexpr const char* kManageAction = "org.perceptd1.manage";
/// To ask models.
inline constexpr const char* kInferAction = "org.perceptd1.infer";
/// What a set of sensors needs, in the order of the kinds.
std::vector<std::string> actions_of(SensorSet sensors);

}  // namespace perceptd::session

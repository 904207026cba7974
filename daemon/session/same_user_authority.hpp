// The authority of a daemon without a system bus: the daemon's own user may do everything, nobody else anything.
// Owns nothing. Never asks anybody.
#pragma once

#include <unistd.h>

#include "session/authority.hpp"

namespace perceptd::session {

/// Thread-bound (main thread). Answers at once.
class SameUserAuthority final : public Authority {
public:
    void authorize(const Peer& subject, const std::vector<std::string>& actions, Callback callback) override {
        if (subject.uid == ::geteuid()) {
            callback(Verdict::Granted, {});
            return;
        }
        callback(Verdict::Denied, actions.empty() ? std::string() : actions.front());
    }

    std::string denial(const std::string& action) const override {
        return action + " is not granted: without the system bus perceptd serves only the user that runs it (uid " +
               std::to_string(::geteuid()) +
               "); be that user, or start perceptd with --bus=system, where polkit decides";
    }
};

}  // namespace perceptd::session

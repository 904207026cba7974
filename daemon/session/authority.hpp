// Who may use what: the question that sessions ask. Declared here, implemented by bus/ (polkit) and by tests.
// Owns nothing.
// Never blocks, and never says yes when in doubt.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace perceptd::session {

/// A client as the kernel or the bus names it, never as a message does.
struct Peer {
    uid_t uid = static_cast<uid_t>(-1);
    gid_t gid = static_cast<gid_t>(-1);
    pid_t pid = 0;
    std::uint64_t start_time_ticks = 0;  ///< of the process, tells it from a later one with its pid; 0 = not known
    std::string bus_name;                ///< unique bus name (":1.42"); empty for a client without D-Bus
};

enum class Verdict : std::uint8_t {
    Denied,
    Granted,
    Unavailable,  ///< the authority does not answer; treated as a denial
};

/// Threads: everything on the main thread.
class Authority {
public:
    /// `denied_action` names the first action that was not granted; empty when all were.
    using Callback = std::function<void(Verdict verdict, const std::string& denied_action)>;

    virtual ~Authority() = default;
    /// Asks whether `subject` may do all of `actions` ("org.perceptd1.use-camera" ...). `callback` runs exactly once,
    /// at once or later, on the main thread; the asker may be gone by then. An unknown action is denied.
    virtual void authorize(const Peer& subject, const std::vector<std::string>& actions, Callback callback) = 0;
    /// The sentence for a client that was denied `action`: who decides here, and what to do next.
    virtual std::string denial(const std::string& action) const {
        return "polkit does not grant " + action + "; ask the device's owner, or ask for less";
    }
};

}  // namespace perceptd::session

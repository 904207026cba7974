// The authority on the system bus: asks polkit over D-Bus, without ever waiting for the answer.
// Owns the questions on their way.
// Never says yes in doubt: no polkit, no answer in time and an answer that makes no sense are all Unavailable.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "bus/connection.hpp"
#include "session/authority.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). `connection` must outlive it. What is unanswered when it is destroyed stays unanswered.
class PolkitAuthority final : public session::Authority {
public:
    struct Options {
        std::int64_t answer_ns = 5 * kNsPerSecond;      ///< for an answer that needs no person
        std::int64_t dialogue_ns = 120 * kNsPerSecond;  ///< for a person who reads and types
    };

    PolkitAuthority(Connection& connection, Options options);

    /// First without a person; only where polkit says that authentication would help, again with a dialogue.
    void authorize(const session::Peer& subject, const std::vector<std::string>& actions, Callback callback) override;
    /// Whether what was granted still holds. Raises no dialogue; what a person has authenticated for holds until polkit
    /// denies it outright.
    void recheck(const session::Peer& subject, const std::vector<std::string>& actions, Callback callback);
    /// Forgets what was authenticated for `subject`, whose last session is over.
    void forget(const session::Peer& subject) noexcept;
    /// Called when polkit says that its answers may have changed.
    void on_changed(std::function<void()> handler) { changed_ = std::move(handler); }
    /// The bus is gone: answers everything with Unavailable, now and from here on, and lets go of the connection.
    void fail_all() noexcept;

private:
    enum class Asking : std::uint8_t { Quietly, WithDialogue, Again };
    struct Question {
        session::Peer subject;
        std::vector<std::string> actions;
        std::size_t next = 0;
        Asking asking = Asking::Quietly;
        bool is_stale = false;  ///< polkit's answers changed while it was asked
        Callback callback;
    };
    using Grant = std::pair<std::string, std::string>;  ///< subject, action

    void begin(const session::Peer& subject, const std::vector<std::string>& actions, Asking asking, Callback callback);
    void ask(std::uint64_t id);
    void answered(std::uint64_t id, sdbus::MethodReply& reply, const sdbus::Error* error);
    void changed();
    void settle(std::uint64_t id, session::Verdict verdict);

    Connection& connection_;
    Options options_;
    std::map<std::uint64_t, Question> questions_;
    std::set<Grant> authenticated_;
    std::uint64_t next_id_ = 1;
    bool is_lost_ = false;
    std::function<void()> changed_;
    std::unique_ptr<sdbus::IProxy> polkit_;  ///< last: it goes first, and with it every answer on its way
};

}  // namespace perceptd::bus

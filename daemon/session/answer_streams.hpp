// The answers that one session reads: its questions on their way, and a place in each answer. Owns the places; the
// answers themselves are shared with whoever makes and reads them.
// Never queues an answer for a client: what it has not read yet lies in the answer, once, for everybody.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/answers.hpp"
#include "session/authority.hpp"
#include "session/channel.hpp"
#include "session/wire.hpp"

namespace perceptd::session {

/// Thread-bound (main thread). What it is given outlives it, but for the authority's and the answers' late replies.
class AnswerStreams {
public:
    struct Hooks {
        std::function<void(const std::string& message)> send;  ///< a control message, queued within bounds
        std::function<void()> on_granted;                      ///< the client may ask models: it is no idler
        std::function<void()> on_readable;                     ///< something can be sent: pump() when there is room
    };

    AnswerStreams(const Peer& peer, Authority& authority, Answers* answers, Hooks hooks);

    /// Generate, StopGeneration or Resume. Throws Error(ProtocolViolation) for a client that asks without end.
    void handle(const Request& request);
    /// Sends what there is, a few packets at a time. Ok: nothing waits. Again: more when the socket has room. Ended:
    /// the peer is gone.
    [[nodiscard]] Status pump(Channel& channel);
    [[nodiscard]] bool wants_write() const noexcept { return is_blocked_; }
    [[nodiscard]] bool is_granted() const noexcept { return is_granted_; }

private:
    struct Place {
        std::shared_ptr<const generate::AnswerLog> log;
        std::uint64_t next_number = 0;
        generate::HeadroomWatch headroom;
    };

    void authorize();
    void decided(Verdict verdict, const std::string& denied_action);
    void submit(const Request& request);
    void replied(const Request& request, const generate::Begun* begun, const Error* error);
    void refuse(const Request& request, const Error& error);
    /// Nothing: there is no part to send.
    std::optional<Status> send_part(Channel& channel, std::uint64_t id, Place& place, bool& is_over);

    const Peer& peer_;
    Authority& authority_;
    Answers* answers_;
    Hooks hooks_;
    std::vector<Request> waiting_;  ///< for polkit
    std::size_t asked_count_ = 0;   ///< questions without reply
    std::map<std::uint64_t, Place> places_;
    bool is_asking_ = false;
    bool is_granted_ = false;
    bool is_blocked_ = false;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< replies may outlive it
};

}  // namespace perceptd::session

// One client's session: Hello, Subscribe, windows, answers until either side ends it; or a provider's: Hello, Provide.
// Owns the channel, the leases of every window the client holds, its share of the quota and its hold on the sensors.
// Never waits for the client: what it does not read or release is lost to it, and counted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/answer_streams.hpp"
#include "session/channel.hpp"
#include "session/feed.hpp"
#include "session/held_windows.hpp"
#include "session/outbox.hpp"
#include "session/quota.hpp"
#include "session/session_options.hpp"
#include "session/wire.hpp"

namespace perceptd::session {

/// Thread-bound (main thread). Events come from outside (see Registry), so that a test needs no loop. Nothing but the
/// constructor throws.
class Session {
public:
    using State = SessionState;
    using Options = SessionOptions;
    using Handlers = SessionHandlers;

    Session(Options options, Channel channel, Quota::Claim claim, Authority& authority, Feed& feed, Handlers handlers);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Writes what waits, reads a few packets. Call when borrow_fd() is ready.
    void handle_ready() noexcept;
    /// True while something waits for room in the socket: poll for EPOLLOUT too.
    [[nodiscard]] bool wants_write() const noexcept;
    [[nodiscard]] int borrow_fd() const noexcept { return channel_.borrow(); }

    /// Offers a window. The session takes leases of the blocks that its sensors allow, or counts the loss.
    void deliver(const WindowOut& window) noexcept;
    /// Takes back the oldest window the client holds; the client sees it in the slot's generation. False: holds none.
    bool revoke_oldest() noexcept;
    /// Hub time at which the oldest held window ended; INT64_MAX when none is held.
    [[nodiscard]] std::int64_t oldest_held_ns() const noexcept { return held_.oldest_ns(); }
    /// True while a window would be lost to this client, for as long as a recording waits: ask before every one.
    [[nodiscard]] bool holds_up(std::int64_t now_ns) noexcept;
    void notify(NoticeKind kind, std::string_view text) noexcept;
    /// These sensors are gone for this session, also if they come back; what it holds stays readable.
    void lose(SensorSet sensors, std::string_view text) noexcept;
    /// To a provider: which kinds are wanted, or none.
    void start_provider(SensorSet sensors, std::uint32_t run, std::int64_t hub_start_ns) noexcept;
    void stop_provider() noexcept;
    /// Some answer has grown: sends what this session reads of it.
    void pump_answers() noexcept;
    /// Ends a session that has not begun to stream by its deadline.
    void check_deadline(std::int64_t now_ns) noexcept;
    /// Gives up every lease, sensor and quota at once and tells the peer by end of file; the descriptor itself is
    /// closed by the destructor, after its event source is gone. Idempotent.
    void close(EndCause cause, std::string_view text) noexcept;

    [[nodiscard]] std::uint64_t id() const noexcept { return options_.id; }
    [[nodiscard]] State state() const noexcept { return state_; }
    [[nodiscard]] const Peer& peer() const noexcept { return options_.peer; }
    [[nodiscard]] const std::string& label() const noexcept { return options_.label; }
    [[nodiscard]] SensorSet sensors() const noexcept { return sensors_; }
    /// The polkit actions that it lives on; before it streams or provides, those that OpenSession was granted.
    [[nodiscard]] std::vector<std::string> granted_actions() const;
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    [[nodiscard]] std::uint32_t windows_in_flight() const noexcept { return static_cast<std::uint32_t>(held_.size()); }
    [[nodiscard]] std::uint32_t windows_in_flight_max() const noexcept { return options_.windows_in_flight_max; }
    [[nodiscard]] std::int64_t captured_at_ns() const noexcept { return captured_at_ns_; }
    [[nodiscard]] EndCause end_cause() const noexcept { return end_.cause; }
    [[nodiscard]] const std::string& end_text() const noexcept { return end_.text; }

private:
    void handle(const Request& request);
    void handle_hello(const Request& request);
    void handle_subscribe(const Request& request);
    void handle_release(const Request& request);
    void handle_provide(const Request& request);
    void handle_provider_ready();
    void handle_answer(const Request& request);
    [[nodiscard]] bool may_ask_again();
    void ask(const std::vector<std::string>& actions);
    void on_verdict(Verdict verdict, const std::string& denied_action);
    void start_providing();
    void send_streams(const StreamOffer& offer);
    void send_control(std::span<const std::byte> bytes, std::span<const int> fds = {});
    void fail(const Error& error, EndCause cause);
    bool flush() noexcept;

    Options options_;
    Channel channel_;
    Quota::Claim claim_;
    Authority& authority_;
    Feed& feed_;
    Handlers handlers_;
    Wire wire_;
    State state_ = State::Hello;
    SensorSet sensors_;
    bool attached_ = false;
    std::uint32_t subscribe_count_ = 0;
    HeldWindows held_;
    Outbox outbox_;
    std::unique_ptr<sensor::Offer> offer_;  ///< of a provider
    bool provides_ = false;
    std::int64_t full_since_ns_ = 0;  ///< hub time; 0 = the client can take a window
    Counters counters_;
    std::unique_ptr<AnswerStreams> answers_;  ///< null until the first question
    std::optional<std::uint64_t> upstream_base_count_;
    std::uint64_t newest_id_ = 0;
    std::int64_t captured_at_ns_ = 0;
    SessionEnd end_;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< an answer of the authority may outlive the session
};

}  // namespace perceptd::session

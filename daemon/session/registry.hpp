// All sessions by id: opens them, drives them from the event loop, ends those whose peer is gone.
// Owns the sessions and their event sources.
// Never destroys a session inside one of its own calls: ended sessions go after the current dispatch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.hpp"
#include "session/session.hpp"

namespace perceptd::session {

/// Thread-bound (main thread). `loop`, `quota`, `authority` and `feed` must outlive it.
class Registry {
public:
    struct OpenOptions {
        SensorSet granted;
        std::uint32_t windows_in_flight_max = 0;  ///< 0 = the quota's limit
        std::string label;
    };
    using OpenedHandler = std::function<void(Session&)>;
    using EndedHandler = std::function<void(const Session&)>;

    Registry(EventLoop& loop, Quota& quota, Authority& authority, Feed& feed);
    ~Registry();
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;

    /// Opens a session on `socket` for `peer` (from the bus). Throws Error(QuotaExceeded, InvalidArgument).
    Session& open(UniqueFd socket, Peer peer, OpenOptions options);
    /// The same for a connection to channel.sock; the peer is what SO_PEERCRED says.
    Session& accept(UniqueFd socket);

    /// Null when there is none, or when it has ended.
    [[nodiscard]] Session* find(std::uint64_t id) noexcept;
    [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
    void for_each(const std::function<void(Session&)>& visit);
    /// Called for each new session, from the bus or from the channel socket.
    void on_opened(OpenedHandler handler) { opened_.push_back(std::move(handler)); }
    /// Called for each ended session before it is destroyed (the bus removes its object).
    void on_ended(EndedHandler handler) { ended_ = std::move(handler); }

    /// Offers a window to every session that streams.
    void deliver(const WindowOut& window) noexcept;
    void notify(NoticeKind kind, std::string_view text) noexcept;
    /// These sensors are gone for every session that has them.
    void lose(SensorSet sensors, std::string_view text) noexcept;
    /// True while some client would lose the next window and a recording should wait for it.
    [[nodiscard]] bool holds_up(std::int64_t now_ns) noexcept;
    /// Takes the oldest windows back from clients until `arena` has `free_slots_min` free slots. Gives back how many.
    std::uint32_t reclaim(const arena::Arena& arena, std::uint32_t free_slots_min) noexcept;

    /// Answers have grown: every session sends what it reads of them.
    void pump_answers() noexcept;
    /// Ends the sessions of a bus name that left the bus. Gives back how many.
    std::uint32_t drop_bus_name(std::string_view bus_name) noexcept;
    /// Ends the user's sessions that hold any of `sensors`: a grant was taken back.
    std::uint32_t drop_grant(uid_t uid, SensorSet sensors) noexcept;
    /// Ends one session because a grant was taken back.
    void revoke(std::uint64_t id) noexcept;
    void drop_all(EndCause cause, std::string_view text) noexcept;

private:
    struct Entry {
        std::unique_ptr<Session> session;
        std::uint32_t events = EPOLLIN;
        std::unique_ptr<EventSource> source;  ///< after `session`: it goes first, while its descriptor is open
    };

    Session& open(Channel& channel, Peer peer, OpenOptions options);
    void watch(Entry& entry);
    void watch_id(std::uint64_t id);
    void schedule_reap();
    void reap();
    void arm_deadline();

    EventLoop& loop_;
    Quota& quota_;
    Authority& authority_;
    Feed& feed_;
    std::map<std::uint64_t, Entry> entries_;
    std::unique_ptr<EventSource> deadline_timer_;
    std::vector<OpenedHandler> opened_;
    EndedHandler ended_;
    std::uint64_t next_id_ = 1;
    bool reap_scheduled_ = false;
    bool deadline_armed_ = false;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< a deferred reap may outlive the registry
};

}  // namespace perceptd::session

#include "session/registry.hpp"

#include <algorithm>
#include <string>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace perceptd::session {
namespace {

constexpr std::int64_t kHandshakeNs = 10 * kNsPerSecond;

void log_end(const Session& session) {
    const std::string text = "session " + std::to_string(session.id()) + " ended (" + name_of(session.end_cause()) +
                             "): " + session.end_text();
    switch (session.end_cause()) {
        case EndCause::Client:
        case EndCause::Requested:
        case EndCause::Shutdown: log::info("session", text); return;
        default: log::write(log::Message::SessionDropped, log::Level::Info, "session", text); return;
    }
}

}  // namespace

Registry::Registry(EventLoop& loop, Quota& quota, Authority& authority, Feed& feed)
    : loop_(loop), quota_(quota), authority_(authority), feed_(feed) {
    deadline_timer_ = loop_.add_timer([this] {
        const std::int64_t now_ns = monotonic_ns();
        for (auto& [id, entry] : entries_) {
            entry.session->check_deadline(now_ns);
        }
        deadline_armed_ = false;
        arm_deadline();
    });
}

Registry::~Registry() {
    drop_all(EndCause::Shutdown, "the daemon stops");
    reap();
}

Session& Registry::open(UniqueFd socket, Peer peer, OpenOptions options) {
    Channel channel(std::move(socket));
    return open(channel, std::move(peer), std::move(options));
}

/// Takes `channel` over only when nothing can be refused any more.
Session& Registry::open(Channel& channel, Peer peer, OpenOptions options) {
    const std::uint32_t limit = quota_.limits().windows_per_session;
    const std::uint32_t wanted = options.windows_in_flight_max;
    if (wanted > limit) {
        Error error(ErrorCode::QuotaExceeded, "windows-in-flight is above the limit; ask for less");
        error.limit = limit;
        error.used = wanted;
        throw error;
    }
    Quota::Claim claim = quota_.open_session(peer.uid);
    const std::uint64_t id = next_id_++;
    Session::Options session_options{.id = id,
                                     .peer = std::move(peer),
                                     .granted = options.granted,
                                     .windows_in_flight_max = wanted == 0 ? limit : wanted,
                                     .handshake_deadline_ns = monotonic_ns() + kHandshakeNs,
                                     .label = std::move(options.label)};
    Entry entry;
    entry.session =
        std::make_unique<Session>(std::move(session_options), std::move(channel), std::move(claim), authority_, feed_,
                                  Session::Handlers{.on_end = [this](Session&) { schedule_reap(); },
                                                    .on_waiting = [this](Session& s) { watch_id(s.id()); }});
    Session& session = *entry.session;
    entry.source = loop_.add_io(session.borrow_fd(), EPOLLIN, [this, id](std::uint32_t) {
        const auto found = entries_.find(id);
        if (found != entries_.end()) {
            found->second.session->handle_ready();
            watch(found->second);
        }
    });
    entries_.emplace(id, std::move(entry));
    arm_deadline();
    for (const OpenedHandler& opened : opened_) {
        opened(session);
    }
    return session;
}

Session& Registry::accept(UniqueFd socket) {
    Channel channel(std::move(socket));
    Peer peer = channel.peer();
    try {
        return open(channel, std::move(peer), {});
    } catch (const Error& error) {
        // There is no session that could say it.
        static_cast<void>(channel.send(Wire().error(error, true)));
        throw;
    }
}

Session* Registry::find(std::uint64_t id) noexcept {
    const auto found = entries_.find(id);
    const bool open = found != entries_.end() && found->second.session->state() != Session::State::Closed;
    return open ? found->second.session.get() : nullptr;
}

void Registry::for_each(const std::function<void(Session&)>& visit) {
    for (auto& [id, entry] : entries_) {
        if (entry.session->state() != Session::State::Closed) {
            visit(*entry.session);
        }
    }
}

void Registry::deliver(const WindowOut& window) noexcept {
    for (auto& [id, entry] : entries_) {
        entry.session->deliver(window);
        watch(entry);
    }
}

void Registry::pump_answers() noexcept {
    for (auto& [id, entry] : entries_) {
        entry.session->pump_answers();
        watch(entry);
    }
}

void Registry::notify(NoticeKind kind, std::string_view text) noexcept {
    for (auto& [id, entry] : entries_) {
        entry.session->notify(kind, text);
        watch(entry);
    }
}

void Registry::lose(SensorSet sensors, std::string_view text) noexcept {
    for (auto& [id, entry] : entries_) {
        entry.session->lose(sensors, text);
        watch(entry);
    }
}

bool Registry::holds_up(std::int64_t now_ns) noexcept {
    bool any = false;
    for (auto& [id, entry] : entries_) {
        any = entry.session->holds_up(now_ns) || any;  // every one: each keeps its own time
    }
    return any;
}

std::uint32_t Registry::reclaim(const arena::Arena& arena, std::uint32_t free_slots_min) noexcept {
    std::uint32_t count = 0;
    while (arena.free_count() < free_slots_min) {
        const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
            return a.second.session->oldest_held_ns() < b.second.session->oldest_held_ns();
        });
        if (oldest == entries_.end() || !oldest->second.session->revoke_oldest()) {
            break;
        }
        ++count;
    }
    return count;
}

std::uint32_t Registry::drop_bus_name(std::string_view bus_name) noexcept {
    std::uint32_t count = 0;
    for (auto& [id, entry] : entries_) {
        Session& session = *entry.session;
        if (!bus_name.empty() && session.peer().bus_name == bus_name && session.state() != Session::State::Closed) {
            session.close(EndCause::PeerGone, "the client left the bus");
            ++count;
        }
    }
    return count;
}

std::uint32_t Registry::drop_grant(uid_t uid, SensorSet sensors) noexcept {
    std::uint32_t count = 0;
    for (auto& [id, entry] : entries_) {
        Session& session = *entry.session;
        if (session.peer().uid == uid && session.sensors().intersects(sensors) &&
            session.state() != Session::State::Closed) {
            revoke(id);
            ++count;
        }
    }
    return count;
}

void Registry::revoke(std::uint64_t id) noexcept {
    if (Session* const session = find(id)) {
        session->notify(NoticeKind::GrantRevoked, "a permission was taken back");
        session->close(EndCause::Revoked, "a permission was taken back");
    }
}

void Registry::drop_all(EndCause cause, std::string_view text) noexcept {
    for (auto& [id, entry] : entries_) {
        if (cause == EndCause::Shutdown) {
            entry.session->notify(NoticeKind::ShuttingDown, text);
        }
        entry.session->close(cause, text);
    }
}

void Registry::watch(Entry& entry) {
    // An ended session's socket is at its end for good: it would wake the loop until the reap.
    const Session& session = *entry.session;
    const std::uint32_t reading = session.state() == Session::State::Closed ? 0u : static_cast<std::uint32_t>(EPOLLIN);
    const std::uint32_t writing = session.wants_write() ? static_cast<std::uint32_t>(EPOLLOUT) : 0u;
    if (entry.events != (reading | writing)) {
        entry.events = reading | writing;
        try {
            entry.source->set_events(entry.events);
        } catch (const std::exception&) {
            // The loop has ended: the daemon stops, and nobody waits for this socket any more.
        }
    }
}

void Registry::watch_id(std::uint64_t id) {
    if (const auto found = entries_.find(id); found != entries_.end()) {
        watch(found->second);
    }
}

void Registry::schedule_reap() {
    if (!reap_scheduled_) {
        loop_.defer([this, alive = std::weak_ptr<char>(alive_)] {
            if (!alive.expired()) {
                reap();
            }
        });
        reap_scheduled_ = true;  // not before: a loop that has ended refuses, and the destructor reaps
    }
}

void Registry::reap() {
    reap_scheduled_ = false;
    for (auto next = entries_.begin(); next != entries_.end();) {
        Session& session = *next->second.session;
        if (session.state() != Session::State::Closed) {
            ++next;
            continue;
        }
        log_end(session);
        if (ended_) {
            ended_(session);
        }
        next = entries_.erase(next);
    }
}

void Registry::arm_deadline() {
    const bool any = std::any_of(entries_.begin(), entries_.end(), [](const auto& item) {
        const Session::State state = item.second.session->state();
        return state != Session::State::Streaming && state != Session::State::Providing &&
               state != Session::State::Closed;
    });
    if (any && !deadline_armed_) {  // never moved by a newcomer, who could else put it off for ever
        deadline_armed_ = true;
        deadline_timer_->arm_at(monotonic_ns() + kNsPerSecond);
    }
}

}  // namespace perceptd::session

#include "bus/manager_object.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bus/interface.hpp"
#include "bus/open_options.hpp"
#include "bus/sensor_object.hpp"
#include "bus/session_object.hpp"
#include "session/actions.hpp"
#include "session/channel.hpp"
#include "session/wire.hpp"

namespace perceptd::bus {
namespace {

constexpr const char* kManager = "org.perceptd1.Manager";
constexpr std::size_t kPendingMax = 64;
constexpr std::size_t kPendingPerCallerMax = 8;
constexpr std::uint32_t kRetryAfterMs = 1000;

using session::Verdict;

[[noreturn]] void refuse_busy(const char* reason, std::size_t limit, std::size_t used) {
    Error error(ErrorCode::Busy, reason);
    error.limit = limit;
    error.used = used;
    error.retry_after_ms = kRetryAfterMs;
    throw error;
}

/// An empty reply that outlives the called object: the library checks a reply, when it is sealed, against the signature
/// that the object declared, which goes with the object.
sdbus::MethodReply sealed_reply(const sdbus::MethodCall& call) {
    sdbus::MethodReply reply = call.createReply();
    reply.seal();
    return reply;
}

}  // namespace

ManagerObject::ManagerObject(Connection& connection, CallerLookup& lookup, session::Authority& authority,
                             DaemonView& daemon)
    : connection_(connection),
      lookup_(lookup),
      authority_(authority),
      daemon_(daemon),
      object_(sdbus::createObject(connection.native(), kRootPath)) {
    Interface manager(*object_, kManager);
    manager.method("OpenSession", {"a{sv}", {"options"}}, {"oh", {"session", "channel"}},
                   [this](const sdbus::MethodCall& call) { open_session(call); });
    manager.property("Version", Emits::Const, [] { return std::string(PERCEPTD_VERSION); });
    manager.property("ChannelVersions", Emits::Const,
                     [] { return sdbus::make_struct(session::kVersionMin, session::kVersionMax); });
    manager.property("Sensors", Emits::Change, [this] {
        std::vector<sdbus::ObjectPath> paths;
        for (const sensor::Kind kind : daemon_.sensors()) {
            paths.emplace_back(SensorObject::path_of(kind));
        }
        return paths;
    });
    manager.property("SessionCount", Emits::Nothing,
                     [this] { return static_cast<std::uint32_t>(daemon_.sessions().size()); });
    manager.property("Configuration", Emits::Nothing, [this] { return daemon_.configuration(); });
    object_->addObjectManager();
    object_->finishRegistration();
}

void ManagerObject::announce_sensors() {
    object_->emitPropertiesChangedSignal(kManager, {"Sensors"});
}

void ManagerObject::open_session(const sdbus::MethodCall& call) {
    Pending pending{
        .call = call, .sender = call.getSender(), .options = read_open_options(call), .close_reply = {}, .peer = {}};
    const std::vector<sensor::Kind> present = daemon_.sensors();
    for (const sensor::Kind kind : sensor::kKinds) {
        if (pending.options.granted.has(kind) && std::find(present.begin(), present.end(), kind) == present.end()) {
            throw Error(ErrorCode::SensorUnavailable, std::string("this device has no ") + word_of(kind) +
                                                          "; the Sensors property lists what it has");
        }
    }
    std::vector<std::string> actions = session::actions_of(pending.options.granted);
    authorize(add(std::move(pending)), std::move(actions), &ManagerObject::opened);
}

std::uint64_t ManagerObject::add(Pending pending) {
    if (pending_.size() >= kPendingMax) {
        refuse_busy("too many calls wait for polkit; try again later", kPendingMax, pending_.size());
    }
    const auto of_caller = static_cast<std::size_t>(std::count_if(
        pending_.begin(), pending_.end(), [&](const auto& item) { return item.second.sender == pending.sender; }));
    if (of_caller >= kPendingPerCallerMax) {
        refuse_busy("too many of this caller's calls wait for an answer; wait for one", kPendingPerCallerMax,
                    of_caller);
    }
    const std::uint64_t id = next_id_++;
    pending_.emplace(id, std::move(pending));
    return id;
}

void ManagerObject::authorize(std::uint64_t id, std::vector<std::string> actions,
                              void (ManagerObject::*then)(Pending&)) {
    const auto decided = [this, id, then, alive = std::weak_ptr<char>(alive_)](Verdict verdict,
                                                                               const std::string& denied) {
        if (alive.expired()) {
            return;
        }
        const auto found = pending_.find(id);
        if (found == pending_.end()) {
            return;  // the caller has left the bus meanwhile
        }
        Pending pending = std::move(found->second);
        pending_.erase(found);
        guard_call(pending.call, [&] {
            if (verdict == Verdict::Denied) {
                throw Error(ErrorCode::NotAuthorized, authority_.denial(denied));
            }
            if (verdict != Verdict::Granted) {
                throw Error(ErrorCode::AuthorityUnavailable,
                            "polkit does not answer, so nothing is granted; is it running?");
            }
            (this->*then)(pending);
        });
    };
    lookup_.identify(pending_.at(id).sender, [this, id, actions = std::move(actions),
                                              decided](const session::Peer* peer) {
        const auto found = pending_.find(id);
        if (found == pending_.end()) {
            return;
        }
        if (peer == nullptr) {
            const Pending pending = std::move(found->second);
            pending_.erase(found);
            reply_error(pending.call, Error(ErrorCode::NotAuthorized, "the bus does not say who you are; try again"));
            return;
        }
        found->second.peer = *peer;
        if (actions.empty()) {
            decided(Verdict::Granted, {});
            return;
        }
        authority_.authorize(*peer, actions, decided);
    });
}

void ManagerObject::opened(Pending& pending) {
    session::ChannelPair pair = session::make_channel_pair();
    session::Session& session =
        daemon_.sessions().open(std::move(pair.daemon_end), std::move(pending.peer), std::move(pending.options));
    try {
        sdbus::MethodReply reply = pending.call.createReply();
        reply << sdbus::ObjectPath(SessionObject::path_of(session.id()))
              << sdbus::UnixFd(pair.client_end.release(), sdbus::adopt_fd);
        reply.send();
    } catch (const std::exception& error) {
        session.close(session::EndCause::PeerGone, error.what());  // nobody could ever use it
        throw;
    }
}

void ManagerObject::close(session::Session& session, const sdbus::MethodCall& call) {
    const std::string sender = call.getSender();
    if (!session.peer().bus_name.empty() && session.peer().bus_name == sender) {
        end(session, sealed_reply(call));
        return;
    }
    Pending pending{.call = call,
                    .sender = sender,
                    .options = {},
                    .session_id = session.id(),
                    .close_reply = sealed_reply(call),
                    .peer = {}};
    authorize(add(std::move(pending)), {session::kManageAction}, &ManagerObject::closed);
}

void ManagerObject::closed(Pending& pending) {
    if (session::Session* const session = daemon_.sessions().find(pending.session_id)) {
        end(*session, std::move(pending.close_reply));
        return;
    }
    pending.close_reply.send();  // it ended while polkit was asked
}

void ManagerObject::end(session::Session& session, sdbus::MethodReply reply) {
    closing_.emplace(session.id(), std::move(reply));
    session.close(session::EndCause::Requested, "Close was called");
}

void ManagerObject::session_ended(std::uint64_t session_id) {
    if (closing_.count(session_id) == 0) {
        return;
    }
    connection_.loop().defer([this, session_id, alive = std::weak_ptr<char>(alive_)] {
        if (alive.expired() || !connection_.is_open()) {
            return;
        }
        const auto [first, last] = closing_.equal_range(session_id);
        for (auto next = first; next != last; ++next) {
            guard_event("answering Close", [&] { next->second.send(); });
        }
        closing_.erase(first, last);
    });
}

void ManagerObject::drop_bus_name(std::string_view bus_name) {
    for (auto next = pending_.begin(); next != pending_.end();) {
        next = next->second.sender == bus_name ? pending_.erase(next) : std::next(next);
    }
}

}  // namespace perceptd::bus

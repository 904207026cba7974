#include "bus/session_object.hpp"

#include <map>
#include <utility>
#include <vector>

#include "bus/daemon_view.hpp"
#include "bus/interface.hpp"

namespace perceptd::bus {
namespace {

constexpr const char* kSession = "org.perceptd1.Session";

using session::Session;

std::map<std::string, std::uint64_t> counters_of(const session::Counters& counters) {
    return {{"sent", counters.sent_count},
            {"released", counters.released_count},
            {"lost_unread", counters.lost_unread_count},
            {"lost_unreleased", counters.lost_unreleased_count},
            {"revoked", counters.revoked_count},
            {"lost_upstream", counters.lost_upstream_count}};
}

}  // namespace

std::string SessionObject::path_of(std::uint64_t id) {
    return std::string(kRootPath) + "/session/" + std::to_string(id);
}

SessionObject::SessionObject(Connection& connection, Session& session, CloseHandler close)
    : connection_(connection),
      session_(session),
      shown_state_(session.state()),
      shown_sensors_(session.sensors()),
      object_(sdbus::createObject(connection.native(), path_of(session.id()))) {
    Interface interface(*object_, kSession);
    interface.method("Close", {}, {},
                     [this, close = std::move(close)](const sdbus::MethodCall& call) { close(session_, call); });
    interface.signal("Closed", {"ss", {"reason", "text"}});
    interface.property("Id", Emits::Const, [this] { return session_.id(); });
    interface.property("State", Emits::Change, [this] { return std::string(name_of(session_.state())); });
    interface.property("OwnerUid", Emits::Const, [this] { return std::uint32_t{session_.peer().uid}; });
    interface.property("OwnerPid", Emits::Const, [this] { return static_cast<std::uint32_t>(session_.peer().pid); });
    interface.property("Label", Emits::Const, [this] { return session_.label(); });
    interface.property("Sensors", Emits::Change, [this] { return words_of(session_.sensors()); });
    interface.property("CapturedAt", Emits::Nothing, [this] { return session_.captured_at_ns(); });
    interface.property("WindowsInFlight", Emits::Nothing, [this] {
        return sdbus::make_struct(session_.windows_in_flight(), session_.windows_in_flight_max());
    });
    interface.property("Counters", Emits::Nothing, [this] { return counters_of(session_.counters()); });
    object_->finishRegistration();
    object_->emitInterfacesAddedSignal();
}

SessionObject::~SessionObject() {
    if (!connection_.is_open()) {
        return;
    }
    guard_event("announcing a session's end", [this] {
        sdbus::Signal closed = object_->createSignal(kSession, "Closed");
        closed << std::string(session::name_of(session_.end_cause())) << session_.end_text();
        object_->emitSignal(closed);
        object_->emitInterfacesRemovedSignal();
    });
}

void SessionObject::publish() {
    std::vector<std::string> changed;
    if (session_.state() != shown_state_) {
        shown_state_ = session_.state();
        changed.emplace_back("State");
    }
    if (session_.sensors() != shown_sensors_) {
        shown_sensors_ = session_.sensors();
        changed.emplace_back("Sensors");
    }
    if (!changed.empty() && connection_.is_open()) {
        object_->emitPropertiesChangedSignal(kSession, changed);
    }
}

}  // namespace perceptd::bus

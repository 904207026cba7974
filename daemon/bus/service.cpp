#include "bus/service.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "bus/caller_lookup.hpp"
#include "bus/connection.hpp"
#include "bus/errors.hpp"
#include "bus/grant_watch.hpp"
#include "bus/interface.hpp"
#include "bus/ledger_object.hpp"
#include "bus/manager_object.hpp"
#include "bus/polkit_authority.hpp"
#include "bus/sensor_object.hpp"
#include "bus/session_object.hpp"
#include "session/same_user_authority.hpp"

namespace perceptd::bus {
namespace {

constexpr std::int64_t kPublishPeriodNs = 250 * kNsPerMs;  // property changes are announced at most this often
constexpr const char* kLeftTheBus =
    "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',interface='org.freedesktop.DBus',"
    "member='NameOwnerChanged',arg2=''";

}  // namespace

class Service::Impl {
public:
    Impl(EventLoop& loop, const Address& address);

    session::Authority& authority() noexcept {
        return polkit_ ? static_cast<session::Authority&>(*polkit_) : same_user_;
    }
    void serve(DaemonView& daemon);
    void ping(std::function<void()> answered);

private:
    void session_opened(session::Session& session);
    void session_ended(const session::Session& session);
    void name_owner_changed(sdbus::Message& message);
    void show_sensors();
    void sensors_changed();
    void publish();
    void schedule_publish();
    void lost(const std::string& reason);

    EventLoop& loop_;
    session::SameUserAuthority same_user_;
    std::unique_ptr<Connection> connection_;
    std::unique_ptr<PolkitAuthority> polkit_;  ///< on the system bus only
    std::unique_ptr<CallerLookup> lookup_;
    DaemonView* daemon_ = nullptr;
    std::unique_ptr<ManagerObject> manager_;
    std::unique_ptr<LedgerObject> ledger_;
    std::unique_ptr<GrantWatch> grants_;
    std::vector<std::unique_ptr<SensorObject>> sensors_;
    std::map<std::uint64_t, std::unique_ptr<SessionObject>> sessions_;
    std::unique_ptr<EventSource> publish_timer_;
    bool publish_scheduled_ = false;
    sdbus::Slot left_the_bus_;
};

Service::Impl::Impl(EventLoop& loop, const Address& address)
    : loop_(loop), connection_(std::make_unique<Connection>(loop, address)) {
    if (address.kind == Address::Kind::System) {
        polkit_ = std::make_unique<PolkitAuthority>(*connection_, PolkitAuthority::Options{});
    }
    lookup_ = std::make_unique<CallerLookup>(*connection_);
    publish_timer_ = loop_.add_timer([this] { publish(); });
    connection_->on_lost([this](const std::string& reason) { lost(reason); });
}

void Service::Impl::serve(DaemonView& daemon) {
    daemon_ = &daemon;
    manager_ = std::make_unique<ManagerObject>(*connection_, *lookup_, authority(), daemon);
    ledger_ = std::make_unique<LedgerObject>(*connection_, *lookup_, authority(), daemon.store());
    show_sensors();
    daemon.on_sensors_changed([this] { sensors_changed(); });
    if (polkit_) {
        grants_ = std::make_unique<GrantWatch>(loop_, *polkit_, daemon.sessions());
    }
    daemon.sessions().for_each([this](session::Session& session) { session_opened(session); });
    daemon.sessions().on_opened([this](session::Session& session) { session_opened(session); });
    daemon.sessions().on_ended([this](const session::Session& session) { session_ended(session); });
    left_the_bus_ = connection_->native().addMatch(kLeftTheBus, [this](sdbus::Message& message) {
        guard_event("a client leaving the bus", [&] { name_owner_changed(message); });
    });
    connection_->request_name(kBusName);
}

/// An object for each sensor that is present, and no other.
void Service::Impl::show_sensors() {
    const std::vector<sensor::Kind> present = daemon_->sensors();
    const auto is_present = [&](sensor::Kind kind) {
        return std::find(present.begin(), present.end(), kind) != present.end();
    };
    sensors_.erase(std::remove_if(sensors_.begin(), sensors_.end(),
                                  [&](const auto& object) { return !is_present(object->kind()); }),
                   sensors_.end());
    for (const sensor::Kind kind : present) {
        if (std::none_of(sensors_.begin(), sensors_.end(), [kind](const auto& o) { return o->kind() == kind; })) {
            sensors_.push_back(std::make_unique<SensorObject>(*connection_, *daemon_, kind));
        }
    }
}

void Service::Impl::sensors_changed() {
    if (connection_ && connection_->is_open()) {
        guard_event("announcing the sensors", [this] {
            show_sensors();
            manager_->announce_sensors();
            schedule_publish();
        });
    }
}

void Service::Impl::session_opened(session::Session& session) {
    if (!connection_) {
        return;
    }
    guard_event("announcing a session", [&] {  // without its object, the session itself goes on
        const auto close = [this](session::Session& ending, const sdbus::MethodCall& call) {
            manager_->close(ending, call);
        };
        sessions_.emplace(session.id(), std::make_unique<SessionObject>(*connection_, session, close));
        schedule_publish();
    });
}

void Service::Impl::session_ended(const session::Session& session) {
    if (!connection_) {
        return;
    }
    sessions_.erase(session.id());
    if (polkit_) {
        bool is_last = true;
        daemon_->sessions().for_each([&](const session::Session& other) {
            is_last =
                is_last && (other.peer().bus_name != session.peer().bus_name || other.peer().pid != session.peer().pid);
        });
        if (is_last) {
            polkit_->forget(session.peer());
        }
    }
    manager_->session_ended(session.id());
}

void Service::Impl::name_owner_changed(sdbus::Message& message) {
    if (message.getSender() != "org.freedesktop.DBus") {
        return;  // anybody may send a signal of that name; only the bus knows
    }
    std::string name;
    std::string old_owner;
    std::string new_owner;
    message >> name >> old_owner >> new_owner;
    if (new_owner.empty() && daemon_ != nullptr) {
        manager_->drop_bus_name(name);
        daemon_->sessions().drop_bus_name(name);
    }
}

void Service::Impl::publish() {
    publish_scheduled_ = false;
    bool is_alive = !sessions_.empty();
    for (const std::unique_ptr<SensorObject>& sensor : sensors_) {
        is_alive = sensor->publish() || is_alive;
    }
    for (const auto& [id, session] : sessions_) {
        session->publish();
    }
    if (is_alive) {  // else nothing changes until a session opens: no timer wakes an idle device
        schedule_publish();
    }
}

void Service::Impl::schedule_publish() {
    if (!publish_scheduled_) {
        publish_timer_->arm_at(monotonic_ns() + kPublishPeriodNs);
        publish_scheduled_ = true;
    }
}

void Service::Impl::ping(std::function<void()> answered) {
    if (!connection_ || !connection_->is_open()) {
        answered();
        return;
    }
    lookup_->ping(std::move(answered));
}

void Service::Impl::lost(const std::string& reason) {
    log::error("bus", "the bus is gone (" + reason +
                          "): sessions that came over it end, the channel socket is served on; restart perceptd when "
                          "the bus is back");
    left_the_bus_.reset();
    sessions_.clear();
    sensors_.clear();
    grants_.reset();
    ledger_.reset();
    manager_.reset();
    lookup_.reset();
    if (polkit_) {
        polkit_->fail_all();
    }
    connection_.reset();
    if (daemon_ != nullptr) {
        daemon_->sessions().for_each([](session::Session& session) {
            if (!session.peer().bus_name.empty()) {
                session.close(session::EndCause::PeerGone, "the bus is gone");
            }
        });
    }
}

Service::Service(EventLoop& loop, const Address& address) : impl_(std::make_unique<Impl>(loop, address)) {}

Service::~Service() = default;

session::Authority& Service::authority() noexcept {
    return impl_->authority();
}

void Service::serve(DaemonView& daemon) {
    impl_->serve(daemon);
}

void Service::ping(std::function<void()> answered) {
    impl_->ping(std::move(answered));
}

}  // namespace perceptd::bus

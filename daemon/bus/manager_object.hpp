// /org/perceptd1: opens sessions and describes the service, as proto/org.perceptd1.Manager.xml describes it.
// Owns the registration on the bus and the calls that wait for an answer.
// Never believes a caller about who it is, and never waits for anybody.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "bus/caller_lookup.hpp"
#include "bus/connection.hpp"
#include "bus/daemon_view.hpp"
#include "session/authority.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). Everything given to it must outlive it, but for the lookup, which goes with it.
class ManagerObject {
public:
    ManagerObject(Connection& connection, CallerLookup& lookup, session::Authority& authority, DaemonView& daemon);

    /// Says that the Sensors property has changed.
    void announce_sensors();
    /// A caller has left the bus: what it asked for is dropped.
    void drop_bus_name(std::string_view bus_name);
    /// Ends `session` when its owner, or a holder of org.perceptd1.manage, asks. Answers the call when all is released.
    void close(session::Session& session, const sdbus::MethodCall& call);
    /// A session has ended and is about to be released: its Close calls are answered after that.
    void session_ended(std::uint64_t session_id);

private:
    /// A call whose caller is looked up, then authorised.
    struct Pending {
        sdbus::MethodCall call;
        std::string sender;
        session::Registry::OpenOptions options;  ///< of OpenSession
        std::uint64_t session_id = 0;            ///< of Close
        sdbus::MethodReply close_reply;
        session::Peer peer;
    };

    void open_session(const sdbus::MethodCall& call);
    std::uint64_t add(Pending pending);
    void authorize(std::uint64_t id, std::vector<std::string> actions, void (ManagerObject::*then)(Pending&));
    void opened(Pending& pending);
    void closed(Pending& pending);
    void end(session::Session& session, sdbus::MethodReply reply);

    Connection& connection_;
    CallerLookup& lookup_;
    session::Authority& authority_;
    DaemonView& daemon_;
    std::map<std::uint64_t, Pending> pending_;
    std::multimap<std::uint64_t, sdbus::MethodReply> closing_;  ///< what to send at its end, by session
    std::uint64_t next_id_ = 1;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< answers and deferred replies may outlive it
    std::unique_ptr<sdbus::IObject> object_;
};

}  // namespace perceptd::bus

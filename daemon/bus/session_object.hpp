// /org/perceptd1/session/<id>: one session on the bus, as proto/org.perceptd1.Session.xml describes it.
// Owns the registration on the bus.
// Never carries data: that is the channel's.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bus/connection.hpp"
#include "session/session.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). `connection` and `session` must outlive it.
class SessionObject {
public:
    /// Answers a Close, now or later; may throw Error instead.
    using CloseHandler = std::function<void(session::Session& session, const sdbus::MethodCall& call)>;

    /// Announces the object.
    SessionObject(Connection& connection, session::Session& session, CloseHandler close);
    /// Says that the session has ended and takes the object from the bus.
    ~SessionObject();
    SessionObject(const SessionObject&) = delete;
    SessionObject& operator=(const SessionObject&) = delete;

    [[nodiscard]] static std::string path_of(std::uint64_t id);
    /// Announces what has changed since the last call.
    void publish();

private:
    Connection& connection_;
    session::Session& session_;
    session::Session::State shown_state_;
    session::SensorSet shown_sensors_;
    std::unique_ptr<sdbus::IObject> object_;
};

}  // namespace perceptd::bus

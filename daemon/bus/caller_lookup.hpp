// Who a caller on the bus is: asks the bus, never the message.
// Owns the questions on their way.
// Never blocks.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <functional>
#include <memory>
#include <string>

#include "bus/connection.hpp"
#include "session/authority.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). `connection` must outlive it; what is on its way when it is destroyed is dropped.
class CallerLookup {
public:
    /// Null when the caller has left the bus, or the bus does not say who it is.
    using Callback = std::function<void(const session::Peer* peer)>;

    explicit CallerLookup(Connection& connection);

    /// Asks for user and process behind a unique name. `callback` runs once, later.
    void identify(const std::string& bus_name, Callback callback);
    /// Asks the bus for a sign of life; `answered` runs only if there is one.
    void ping(std::function<void()> answered);

private:
    std::unique_ptr<sdbus::IProxy> bus_;
};

}  // namespace perceptd::bus

// The daemon on the message bus: everything of this stage that the daemon's own files see. Knows no sdbus-c++ type.
// Owns the connection, the authority that goes with the bus, and every object on it.
// Never outlives its use: when the bus has gone, it ends the sessions that came over it and lets the rest go on.
#pragma once

#include <functional>
#include <memory>

#include "base/event_loop.hpp"
#include "bus/address.hpp"
#include "bus/daemon_view.hpp"
#include "session/authority.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). Blocks while it connects and takes its name, never after.
class Service {
public:
    /// Connects. Throws Error that says what to do when the bus cannot be reached. `loop` must outlive it.
    Service(EventLoop& loop, const Address& address);
    ~Service();
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    /// Who may do what: polkit's word on the system bus; on any other bus the daemon's own user may, nobody else.
    [[nodiscard]] session::Authority& authority() noexcept;
    /// Puts the objects on the bus, then takes the name org.perceptd1. Throws Error(Busy) when another process has it.
    /// `daemon` must live while the loop runs.
    void serve(DaemonView& daemon);
    /// Calls `answered` when the bus has answered a ping; at once when the bus is gone, which is not our fault.
    void ping(std::function<void()> answered);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace perceptd::bus

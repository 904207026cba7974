// The connection to a message bus, driven by the daemon's event loop: sdbus-c++ 1.2 cannot attach to sd-event, so its
// descriptor, events and timeout are armed again before every poll.
// Owns the connection and its event sources.
// Never runs a second thread or loop, and never blocks once it is open.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.hpp"
#include "base/unique_fd.hpp"
#include "bus/address.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). `loop` must outlive it; every sdbus object and proxy on it must go before it.
class Connection {
public:
    using LostHandler = std::function<void(const std::string& reason)>;

    /// Connects; blocks for the handshake. Throws Error(Unsupported) that says what to do when there is no bus.
    Connection(EventLoop& loop, const Address& address);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Takes the well-known name; blocks for the answer. Throws Error(Busy) that names the owner's process.
    void request_name(const std::string& name);
    /// Called once, outside of any bus callback, when the bus has gone. The handler may destroy the connection.
    void on_lost(LostHandler handler) { lost_ = std::move(handler); }
    [[nodiscard]] bool is_open() const noexcept { return is_open_; }

    [[nodiscard]] sdbus::IConnection& native() noexcept { return *native_; }
    [[nodiscard]] EventLoop& loop() noexcept { return loop_; }

private:
    void process() noexcept;
    void rearm() noexcept;
    void lose(const std::string& reason) noexcept;
    [[nodiscard]] std::string owner_of(const std::string& name);

    EventLoop& loop_;
    std::unique_ptr<sdbus::IConnection> native_;
    UniqueFd poll_fd_;  ///< our own: the library closes its descriptor while the loop still polls it
    std::unique_ptr<EventSource> readable_;
    std::unique_ptr<EventSource> timer_;
    std::unique_ptr<EventSource> prepare_;
    short armed_events_ = 0;
    std::uint64_t armed_until_us_ = UINT64_MAX;
    bool is_open_ = true;
    LostHandler lost_;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< the deferred loss may outlive the connection
};

}  // namespace perceptd::bus

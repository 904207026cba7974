// Tells systemd that the daemon is well, only after everything that must move has moved.
// Owns its timer.
// Never vouches for a part that it has not seen alive since the last time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/event_loop.hpp"

namespace perceptd {

/// Thread-bound (main thread). Does nothing where systemd asked for no watchdog.
class Watchdog {
public:
    struct Signs {
        /// Calls back when the bus has answered; not at all when it does not.
        std::function<void(std::function<void()> answered)> ask_bus;
        std::function<bool()> is_sensing;                ///< whether the heartbeat must move
        std::function<std::uint64_t()> heartbeat_count;  ///< of the pipeline thread
        std::function<void()> feed;                      ///< sd_notify, but for tests
    };

    /// `period_ns` is what systemd allows between two signs of life. `loop` must outlive it.
    Watchdog(EventLoop& loop, std::int64_t period_ns, Signs signs);

private:
    void look();

    Signs signs_;
    std::int64_t pause_ns_;
    std::uint64_t seen_heartbeat_count_ = 0;
    bool was_sensing_ = false;
    std::uint32_t unanswered_count_ = 0;  ///< questions to the bus since its last answer
    std::unique_ptr<EventSource> timer_;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< the bus may answer later
};

}  // namespace perceptd

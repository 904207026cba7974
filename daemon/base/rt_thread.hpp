// A named thread for the data path: SCHED_FIFO when the system allows it, ordinary otherwise (reported once).
// Owns the thread; never detaches it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace perceptd {

struct RtThreadOptions {
    std::string name;       ///< at most 15 characters, shown in ps and traces
    int fifo_priority = 0;  ///< 1..99; 0 = SCHED_OTHER
    int cpu_index = -1;     ///< pinned core; -1 = any
};

/// Runs `body(stop)` on its own thread inside a hot_path::Scope. The body polls `stop` after each wake-up.
/// Thread-bound to the creator. The destructor sets stop, calls `wake` and joins.
class RtThread {
public:
    using Body = std::function<void(const std::atomic<bool>& stop)>;

    RtThread(RtThreadOptions options, Body body, std::function<void()> wake);
    ~RtThread();
    RtThread(const RtThread&) = delete;
    RtThread& operator=(const RtThread&) = delete;

    /// True when SCHED_FIFO was asked for and granted.
    [[nodiscard]] bool is_realtime() const noexcept { return realtime_.load(std::memory_order_relaxed); }

private:
    std::atomic<bool> stop_{false};
    std::atomic<bool> realtime_{false};
    std::function<void()> wake_;
    std::thread thread_;
};

}  // namespace perceptd

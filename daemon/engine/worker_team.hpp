// A fixed team of pinned threads that runs one program together (each worker the same code, one pass = one wake-up).
// Owns the threads. Never allocates or locks after construction: workers spin for a bounded time, then sleep on a
// futex.
//
// Within a pass: share() deals out the pieces of a loop by atomic counters (who takes a piece never changes its
// bits), barrier() separates loops that depend on each other. Every worker must meet the same share() and barrier()
// calls. A pass may get fewer workers than there are (team_width.hpp); the rest sleep through it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/team_width.hpp"
#include "engine/traffic_counter.hpp"

namespace perceptd::engine {

class WorkerTeam;

/// One worker's view of the pass that runs now. Thread-bound to that worker.
class Worker {
public:
    [[nodiscard]] std::size_t index() const noexcept { return index_; }
    /// Workers of this pass.
    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    /// Calls `body(piece)` for the pieces of [0, piece_count) that this worker gets: those of its own part in order,
    /// so that what it reads is one stream, then what others have left of theirs. No barrier at its end.
    template <typename Body>
    void share(std::size_t piece_count, Body&& body) noexcept {
        LoopCounter* const taken = next_loop();
        const std::size_t workers = count();
        for (std::size_t turn = 0; turn < workers; ++turn) {
            const std::size_t owner = (index_ + turn) % workers;
            const std::size_t begin = piece_count * owner / workers;
            const std::size_t end = piece_count * (owner + 1) / workers;
            for (std::size_t piece = begin + take(taken[owner]); piece < end; piece = begin + take(taken[owner])) {
                body(piece);
            }
        }
    }
    /// Returns when every worker has come here; what they wrote before is visible after.
    void barrier() noexcept;
    /// The same answer for all workers between two barriers: whether the pass should end early.
    [[nodiscard]] bool cancelled() const noexcept { return cancelled_; }

    TrafficCounter traffic;

private:
    friend class WorkerTeam;
    struct alignas(64) LoopCounter {
        std::atomic<std::size_t> next{0};
    };
    LoopCounter* next_loop() noexcept;
    void begin_pass() noexcept;
    static std::size_t take(LoopCounter& taken) noexcept { return taken.next.fetch_add(1, std::memory_order_relaxed); }

    WorkerTeam* team_ = nullptr;
    std::size_t index_ = 0;
    std::size_t count_ = 1;
    std::size_t loop_ = 0;     ///< loops met since the last barrier
    std::uint32_t phase_ = 0;  ///< barriers of all passes so far
    std::uint32_t pass_ = 0;
    bool cancelled_ = false;
    std::atomic<std::int64_t> slept_ns_{0};  ///< before barriers of this pass
};

struct WorkerTeamOptions {
    std::size_t worker_count = 1;  ///< including the caller of run()
    std::vector<int>
        cpu_indices;             ///< worker i is pinned to the i-th; the caller (worker 0) is never moved; empty: none
    std::uint32_t spin_us = 50;  ///< how long a worker waits awake for the next pass or barrier
    int fifo_priority = 0;       ///< 1..99 asks for SCHED_FIFO; refused quietly
    bool adapts = true;          ///< passes get fewer workers while some are kept from running; needs spin_us > 0
};

/// Threads: construct, run() and destroy on one thread; cancel() from any. run() is real-time: no allocation, no lock.
class WorkerTeam {
public:
    using Program = void (*)(Worker& worker, void* argument) noexcept;
    static constexpr std::size_t kLoopsPerPhase = 16;

    /// Throws Error (InvalidArgument) for 0 or more than 256 workers, std::system_error when a thread cannot start.
    explicit WorkerTeam(WorkerTeamOptions options);
    ~WorkerTeam();
    WorkerTeam(const WorkerTeam&) = delete;
    WorkerTeam& operator=(const WorkerTeam&) = delete;

    [[nodiscard]] std::size_t worker_count() const noexcept { return workers_.size(); }
    /// Runs `program` on the workers of this pass, the caller as worker 0; returns when all are done. False: it was
    /// cancelled.
    bool run(Program program, void* argument) noexcept;
    /// The same for a callable; borrowed for the call.
    template <typename Body>
    bool run(Body& body) noexcept {
        return run([](Worker& worker, void* argument) noexcept { (*static_cast<Body*>(argument))(worker); }, &body);
    }
    /// Asks the running pass, or else the next, to end at its next barrier. Any thread, async-signal-safe.
    void cancel() noexcept { cancel_.store(true, std::memory_order_relaxed); }
    /// What all workers counted since the last call. Between passes only.
    TrafficCounter take_traffic() noexcept;

private:
    friend class Worker;
    struct alignas(64) Slot {
        Worker worker;
    };
    struct Shared;

    void serve(std::size_t index) noexcept;
    void stop() noexcept;

    std::vector<Slot> workers_;
    std::unique_ptr<Shared> shared_;
    std::vector<std::thread> threads_;
    std::atomic<bool> cancel_{false};
    WorkerTeamOptions options_;
    TeamWidth width_;
};

}  // namespace perceptd::engine

// The thread that serves every client's job ring: it takes submissions, hands them on and writes completions.
// Owns the thread and the rings.
// Never blocks on a client, never lets one ring starve another, never spins longer than it pays.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mpsc_ring.hpp"
#include "base/rt_thread.hpp"
#include "base/unique_fd.hpp"
#include "queue/job_ring.hpp"
#include "spin_budget.hpp"

namespace perceptd::queue {

using RingId = std::uint64_t;

/// What a ring's jobs go to. All calls on the ring thread; real-time.
class RingHandler {
public:
    virtual ~RingHandler() = default;
    /// A well-formed job that is not empty. 0: taken over, RingService::complete() will follow; otherwise the
    /// status (PERCEPT_JOB_*) that answers it at once.
    [[nodiscard]] virtual std::uint32_t on_job(RingId ring, const percept_job_entry& entry) noexcept = 0;
    /// The client broke the ring's contract; it is served no more. Close its session.
    virtual void on_broken(RingId ring, const char* reason) noexcept = 0;
};

struct RingServiceOptions {
    int fifo_priority = 0;
    int cpu_index = -1;                ///< pinned processor; -1 = any
    std::uint32_t spin_limit_us = 30;  ///< longest look for work before sleeping; 0 on one processor
};

/// add() and remove() on one thread, complete() on any.
class RingService {
public:
    static constexpr std::size_t kRingsMax = 64;

    /// `handler` outlives this. Throws std::system_error.
    RingService(const RingServiceOptions& options, RingHandler& handler);
    ~RingService();
    RingService(const RingService&) = delete;
    RingService& operator=(const RingService&) = delete;

    /// Serves `ring` from now on. Throws Error(Busy) at kRingsMax.
    RingId add(std::unique_ptr<JobRing> ring);
    /// Ends it; the handler hears of it no more once this returns. Waits for the pass in progress (microseconds).
    void remove(RingId ring) noexcept;
    /// Answers a job that on_job() took over; silently nothing when its ring is gone. Any thread. Real-time: no
    /// allocation, no lock; one system call when the ring thread sleeps. Full: try again, the thread is behind.
    [[nodiscard]] bool complete(RingId ring, const percept_job_completion& completion) noexcept;

    /// Jobs taken since the start. Any thread.
    [[nodiscard]] std::uint64_t job_count() const noexcept { return job_count_.load(std::memory_order_relaxed); }

private:
    struct Slot {
        std::unique_ptr<JobRing> owned;  // the creator's
        std::atomic<JobRing*> ring{nullptr};
        std::atomic<RingId> id{0};
        std::atomic<std::uint32_t> idle_bells{0};  // the ring thread's; set back when the slot is taken anew
        bool is_broken = false;                    // the ring thread's
    };
    struct Answer {
        RingId ring;
        percept_job_completion completion;
    };

    void serve(const std::atomic<bool>& stop) noexcept;
    bool serve_all() noexcept;
    bool serve_slot(Slot& slot, JobRing& ring) noexcept;
    bool write_answers() noexcept;
    void answer(Slot& slot, JobRing& ring, const percept_job_completion& completion) noexcept;
    void give_up(Slot& slot, const char* reason) noexcept;
    void sleep() noexcept;
    void wake() noexcept;

    RingHandler& handler_;
    std::array<Slot, kRingsMax> slots_;
    MpscRing<Answer> answers_;
    SpinBudget spin_;
    UniqueFd epoll_;
    UniqueFd wake_bell_;
    std::atomic<bool> is_sleeping_{false};
    std::atomic<std::uint64_t> pass_count_{0};
    std::atomic<std::uint64_t> job_count_{0};
    RingId next_generation_ = 1;
    std::unique_ptr<RtThread> thread_;
};

}  // namespace perceptd::queue

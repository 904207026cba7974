#include "engine/worker_team.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>

#include "base/clock.hpp"
#include "base/contract.hpp"
#include "base/error.hpp"
#include "base/hot_path.hpp"

namespace perceptd::engine {
namespace {

void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// A counter that threads wait on: awake for a bounded time, then in the kernel.
class Gate {
public:
    [[nodiscard]] std::uint32_t value() const noexcept { return value_.load(std::memory_order_acquire); }

    void advance() noexcept {
        value_.fetch_add(1, std::memory_order_seq_cst);
        // Sequentially consistent on both sides: a sleeper that is not seen here sees the new value before it sleeps.
        if (sleepers_.load(std::memory_order_seq_cst) != 0) {
            ::syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
        }
    }

    /// Returns how long the caller slept in the kernel.
    std::int64_t wait_past(std::uint32_t seen, std::uint32_t spin_us) noexcept {
        constexpr int kPausesPerClock = 64;
        std::int64_t now_ns = monotonic_ns();
        const std::int64_t until_ns = now_ns + spin_us * kNsPerUs;
        do {
            for (int i = 0; i < kPausesPerClock; ++i) {
                if (value() != seen) {
                    return 0;
                }
                pause();
            }
            now_ns = monotonic_ns();
        } while (now_ns < until_ns);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        while (value_.load(std::memory_order_seq_cst) == seen) {
            ::syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        }
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
        return monotonic_ns() - now_ns;
    }

private:
    alignas(64) std::atomic<std::uint32_t> value_{0};
    alignas(64) std::atomic<std::uint32_t> sleepers_{0};
};

void pin(int cpu_index) noexcept {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu_index), &set);
    // A cpu that is offline or forbidden leaves the thread where it may run.
    ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

}  // namespace

struct WorkerTeam::Shared {
    std::unique_ptr<Gate[]> starts;  ///< of each worker: one step per pass that it takes part in
    Gate barrier;                    ///< one step per barrier
    alignas(64) std::atomic<std::size_t> arrived{0};
    std::vector<Worker::LoopCounter> loops;  ///< of each loop of a phase, one for each worker's part
    // Published by `starts`:
    Program program = nullptr;
    void* argument = nullptr;
    std::size_t active = 1;  ///< workers of this pass
    std::uint32_t pass = 0;  ///< counts from 1
    bool ending = false;
    /// Who left the last barrier of a pass may be late while the next runs without it, so this is atomic.
    std::atomic<std::uint32_t> cancelled_pass{0};
};

WorkerTeam::WorkerTeam(WorkerTeamOptions options) : options_(std::move(options)), width_(options_.worker_count) {
    constexpr std::size_t kMostWorkers = 256;
    if (options_.worker_count == 0 || options_.worker_count > kMostWorkers) {
        throw Error(ErrorCode::InvalidArgument,
                    "a worker team has 1 to 256 workers, not " + std::to_string(options_.worker_count));
    }
    shared_ = std::make_unique<Shared>();
    shared_->starts = std::make_unique<Gate[]>(options_.worker_count);
    shared_->loops = std::vector<Worker::LoopCounter>(kLoopsPerPhase * options_.worker_count);
    workers_ = std::vector<Slot>(options_.worker_count);
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        workers_[i].worker.team_ = this;
        workers_[i].worker.index_ = i;
    }
    threads_.reserve(options_.worker_count - 1);
    try {
        for (std::size_t i = 1; i < options_.worker_count; ++i) {
            threads_.emplace_back([this, i] { serve(i); });
        }
    } catch (...) {
        stop();
        throw;
    }
}

WorkerTeam::~WorkerTeam() {
    stop();
}

void WorkerTeam::stop() noexcept {
    shared_->ending = true;
    for (std::size_t i = 1; i < workers_.size(); ++i) {
        shared_->starts[i].advance();
    }
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

void WorkerTeam::serve(std::size_t index) noexcept {
    ::pthread_setname_np(::pthread_self(), "engine");
    if (index < options_.cpu_indices.size() && options_.cpu_indices[index] >= 0) {
        pin(options_.cpu_indices[index]);
    }
    if (options_.fifo_priority > 0) {
        sched_param parameter{};
        parameter.sched_priority = options_.fifo_priority;
        ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &parameter);
    }
    const hot_path::Scope hot;
    Worker& worker = workers_[index].worker;
    for (std::uint32_t pass = 0;; ++pass) {
        shared_->starts[index].wait_past(pass, options_.spin_us);
        if (shared_->ending) {
            return;
        }
        worker.begin_pass();
        shared_->program(worker, shared_->argument);
        worker.barrier();
    }
}

bool WorkerTeam::run(Program program, void* argument) noexcept {
    const bool adapts = options_.adapts && options_.spin_us > 0 && workers_.size() > 1;
    const std::int64_t begin_ns = adapts ? monotonic_ns() : 0;
    shared_->program = program;
    shared_->argument = argument;
    shared_->active = adapts ? width_.next() : workers_.size();
    ++shared_->pass;
    for (std::size_t i = 1; i < shared_->active; ++i) {
        shared_->starts[i].advance();
    }
    Worker& worker = workers_[0].worker;
    worker.begin_pass();
    program(worker, argument);
    worker.barrier();
    if (adapts) {
        std::int64_t slept_ns = 0;
        for (std::size_t i = 0; i < shared_->active; ++i) {
            slept_ns = std::max(slept_ns, workers_[i].worker.slept_ns_.load(std::memory_order_relaxed));
        }
        width_.observe(monotonic_ns() - begin_ns, slept_ns);
    }
    return !worker.cancelled_;
}

TrafficCounter WorkerTeam::take_traffic() noexcept {
    TrafficCounter total;
    for (Slot& slot : workers_) {
        total += slot.worker.traffic;
        slot.worker.traffic = {};
    }
    return total;
}

void Worker::begin_pass() noexcept {
    const WorkerTeam::Shared& shared = *team_->shared_;
    count_ = shared.active;
    pass_ = shared.pass;
    phase_ = shared.barrier.value();  // nobody is past a barrier of this pass before all have begun it
    cancelled_ = false;
    slept_ns_.store(0, std::memory_order_relaxed);
}

Worker::LoopCounter* Worker::next_loop() noexcept {
    PERCEPTD_ASSERT(loop_ < WorkerTeam::kLoopsPerPhase);
    return &team_->shared_->loops[loop_++ * count_];
}

void Worker::barrier() noexcept {
    WorkerTeam::Shared& shared = *team_->shared_;
    const std::size_t counters = loop_ * count_;
    loop_ = 0;
    const std::uint32_t phase = phase_++;
    if (shared.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
        shared.arrived.store(0, std::memory_order_relaxed);
        for (std::size_t i = 0; i < counters; ++i) {
            shared.loops[i].next.store(0, std::memory_order_relaxed);
        }
        if (team_->cancel_.exchange(false, std::memory_order_relaxed)) {
            shared.cancelled_pass.store(pass_, std::memory_order_relaxed);
        }
        shared.barrier.advance();
    } else {
        const std::int64_t slept_ns = shared.barrier.wait_past(phase, team_->options_.spin_us);
        if (slept_ns > 0) {
            slept_ns_.store(slept_ns_.load(std::memory_order_relaxed) + slept_ns, std::memory_order_relaxed);
        }
    }
    // The next writer of this pass is the last of us at its next barrier, so this read is in time.
    cancelled_ = shared.cancelled_pass.load(std::memory_order_relaxed) == pass_;
}

}  // namespace perceptd::engine

#include "engine/worker_team.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

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

    void wait_past(std::uint32_t seen, std::uint32_t spin_us) noexcept {
        constexpr int kPausesPerClock = 64;
        const std::int64_t until_ns = spin_us == 0 ? 0 : monotonic_ns() + spin_us * kNsPerUs;
        do {
            for (int i = 0; i < kPausesPerClock; ++i) {
                if (value() != seen) {
                    return;
                }
                pause();
            }
        } while (spin_us != 0 && monotonic_ns() < until_ns);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        while (value_.load(std::memory_order_seq_cst) == seen) {
            ::syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        }
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
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
    Gate start;    ///< one step per pass
    Gate barrier;  ///< one step per barrier
    alignas(64) std::atomic<std::size_t> arrived{0};
    std::vector<Worker::LoopCounter> loops;  ///< of each loop of a phase, one for each worker's part
    Program program = nullptr;               ///< published by `start`
    void* argument = nullptr;
    bool ending = false;
    std::uint32_t cancelled_pass = 0;  ///< published by `barrier`; passes count from 1
};

WorkerTeam::WorkerTeam(WorkerTeamOptions options) : options_(std::move(options)) {
    constexpr std::size_t kMostWorkers = 256;
    if (options_.worker_count == 0 || options_.worker_count > kMostWorkers) {
        throw Error(ErrorCode::InvalidArgument,
                    "a worker team has 1 to 256 workers, not " + std::to_string(options_.worker_count));
    }
    shared_ = std::make_unique<Shared>();
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
    shared_->start.advance();
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
        shared_->start.wait_past(pass, options_.spin_us);
        if (shared_->ending) {
            return;
        }
        worker.begin_pass();
        shared_->program(worker, shared_->argument);
        worker.barrier();
    }
}

bool WorkerTeam::run(Program program, void* argument) noexcept {
    shared_->program = program;
    shared_->argument = argument;
    shared_->start.advance();
    Worker& worker = workers_[0].worker;
    worker.begin_pass();
    program(worker, argument);
    worker.barrier();
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

std::size_t Worker::count() const noexcept {
    return team_->workers_.size();
}

Worker::LoopCounter* Worker::next_loop() noexcept {
    PERCEPTD_ASSERT(loop_ < WorkerTeam::kLoopsPerPhase);
    return &team_->shared_->loops[loop_++ * team_->workers_.size()];
}

void Worker::barrier() noexcept {
    WorkerTeam::Shared& shared = *team_->shared_;
    const std::size_t counters = loop_ * team_->workers_.size();
    loop_ = 0;
    const std::uint32_t phase = phase_++;
    if (shared.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == team_->workers_.size()) {
        shared.arrived.store(0, std::memory_order_relaxed);
        for (std::size_t i = 0; i < counters; ++i) {
            shared.loops[i].next.store(0, std::memory_order_relaxed);
        }
        if (team_->cancel_.exchange(false, std::memory_order_relaxed)) {
            shared.cancelled_pass = pass_;
        }
        shared.barrier.advance();
    } else {
        shared.barrier.wait_past(phase, team_->options_.spin_us);
    }
    // The next writer is the last of us at the next barrier, so this read is in time.
    cancelled_ = shared.cancelled_pass == pass_;
}

}  // namespace perceptd::engine

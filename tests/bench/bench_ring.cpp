// An empty job's way through a job ring and back, between two processes, beside bare ping-pongs of the same run: two
// eventfds when both sides sleep, two words in shared memory when both are awake.
// The parent is the daemon (RingService), the child the client (libpercept's half); each has a processor of its own.
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>

#include "base/clock.hpp"
#include "job_ring.hpp"
#include "percentile.hpp"
#include "percept/percept.h"
#include "queue/ring_service.hpp"

using namespace perceptd;

namespace {

constexpr int kRoundsPerBatch = 2000;
constexpr int kWarmUpBatches = 2;
constexpr std::uint32_t kSpinLimitUs = 30;

enum Kind { Eventfd, RingSleeping, Spin, RingAwake, SubmitSleeping, SubmitAwake, KindCount };

void require(bool condition, const char* what) {
    if (!condition) {
        std::cerr << "bench_ring: " << what << '\n';
        std::_Exit(1);
    }
}

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    // One processor only: everything runs there, and the numbers say so.
    static_cast<void>(::sched_setaffinity(0, sizeof(set), &set));
}

/// What both processes see: two words, each on its own cache line, and the durations that the client measured.
struct Shared {
    alignas(64) std::atomic<std::uint64_t> ping;
    alignas(64) std::atomic<std::uint64_t> pong;
    alignas(64) std::int64_t durations_ns[KindCount][kRoundsPerBatch];
};

struct Eventfds {
    int ping = ::eventfd(0, EFD_CLOEXEC);
    int pong = ::eventfd(0, EFD_CLOEXEC);
};

void write_one(int fd) {
    const std::uint64_t one = 1;
    require(::write(fd, &one, sizeof(one)) == sizeof(one), "eventfd write");
}

void read_any(int fd) {
    std::uint64_t value = 0;
    require(::read(fd, &value, sizeof(value)) == sizeof(value), "eventfd read");
}

void await(const std::atomic<std::uint64_t>& word, std::uint64_t value) {
    while (word.load(std::memory_order_acquire) < value) {
        spin_pause();
    }
}

// ------------------------------------------------------------------------------------------------ the client

class Client {
public:
    Client(Shared& shared, Eventfds fds, queue::JobRing::ClientEnd sleeping, queue::JobRing::ClientEnd awake)
        : shared_(shared),
          fds_(fds),
          sleeping_(std::make_unique<percept::JobRing>(percept::UniqueFd(sleeping.memory.release()),
                                                       percept::UniqueFd(sleeping.submission_bell.release()),
                                                       percept::UniqueFd(sleeping.completion_bell.release()), 0)),
          awake_(std::make_unique<percept::JobRing>(percept::UniqueFd(awake.memory.release()),
                                                    percept::UniqueFd(awake.submission_bell.release()),
                                                    percept::UniqueFd(awake.completion_bell.release()), kSpinLimitUs)) {
    }

    void run(Kind kind) {
        switch (kind) {
            case Eventfd: return run_eventfd();
            case RingSleeping: return run_ring(*sleeping_, RingSleeping, SubmitSleeping);
            case Spin: return run_spin();
            default: return run_ring(*awake_, RingAwake, SubmitAwake);
        }
    }

private:
    void run_eventfd() {
        for (int i = 0; i < kRoundsPerBatch; ++i) {
            const std::int64_t start_ns = monotonic_ns();
            write_one(fds_.ping);
            read_any(fds_.pong);
            shared_.durations_ns[Eventfd][i] = monotonic_ns() - start_ns;
        }
    }

    void run_spin() {
        for (int i = 0; i < kRoundsPerBatch; ++i) {
            const std::int64_t start_ns = monotonic_ns();
            shared_.ping.store(++spin_count_, std::memory_order_release);
            await(shared_.pong, spin_count_);
            shared_.durations_ns[Spin][i] = monotonic_ns() - start_ns;
        }
    }

    void run_ring(percept::JobRing& ring, Kind kind, Kind submit_kind) {
        percept_job_completion completion{};
        for (int i = 0; i < kRoundsPerBatch; ++i) {
            const percept_job_entry entry{.job_id = ++job_id_};
            const std::int64_t start_ns = monotonic_ns();
            require(ring.submit(entry) == PERCEPT_OK, "a full ring");
            const std::int64_t submitted_ns = monotonic_ns();
            require(ring.next(10'000, completion) == PERCEPT_OK, "no completion");
            shared_.durations_ns[kind][i] = monotonic_ns() - start_ns;
            shared_.durations_ns[submit_kind][i] = submitted_ns - start_ns;
            require(completion.job_id == job_id_ && completion.status == PERCEPT_JOB_DONE, "a wrong completion");
        }
    }

    Shared& shared_;
    Eventfds fds_;
    std::unique_ptr<percept::JobRing> sleeping_;
    std::unique_ptr<percept::JobRing> awake_;
    std::uint64_t job_id_ = 0;
    std::uint64_t spin_count_ = 0;
};

int run_client(Client& client, int order, int done) {
    std::uint64_t kind = 0;
    while (::read(order, &kind, sizeof(kind)) == sizeof(kind)) {
        if (kind > RingAwake + 1) {
            return 0;
        }
        client.run(static_cast<Kind>(kind - 1));
        write_one(done);
    }
    return 1;
}

// ------------------------------------------------------------------------------------------------ the daemon

struct NoJobs final : queue::RingHandler {
    std::uint32_t on_job(queue::RingId, const percept_job_entry&) noexcept override { return PERCEPT_JOB_INVALID; }
    void on_broken(queue::RingId, const char* reason) noexcept override { require(false, reason); }
};

void echo(Shared& shared, Eventfds fds, Kind kind, std::uint64_t& spin_count) {
    for (int i = 0; i < kRoundsPerBatch && kind == Eventfd; ++i) {
        read_any(fds.ping);
        write_one(fds.pong);
    }
    for (int i = 0; i < kRoundsPerBatch && kind == Spin; ++i) {
        await(shared.ping, ++spin_count);
        shared.pong.store(spin_count, std::memory_order_release);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const int batches = argc > 1 ? std::atoi(argv[1]) : 20;
    ::signal(SIGPIPE, SIG_IGN);
    void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "mmap");
    Shared& shared = *new (memory) Shared{};
    const Eventfds fds;
    const Eventfds orders;

    auto sleeping = std::make_unique<queue::JobRing>("bench-sleeping");
    auto awake = std::make_unique<queue::JobRing>("bench-awake");
    const pid_t child = ::fork();
    require(child >= 0, "fork");
    if (child == 0) {
        pin(1);
        Client client(shared, fds, sleeping->take_client_end(), awake->take_client_end());
        std::_Exit(run_client(client, orders.ping, orders.pong));
    }
    // The client's ends stay open here as well: nothing hangs on their closing.
    const auto sleeping_end = sleeping->take_client_end();
    const auto awake_end = awake->take_client_end();
    pin(0);
    NoJobs no_jobs;
    queue::RingService sleeper({.cpu_index = 0, .spin_limit_us = 0}, no_jobs);
    queue::RingService spinner({.cpu_index = 0, .spin_limit_us = kSpinLimitUs}, no_jobs);
    sleeper.add(std::move(sleeping));
    spinner.add(std::move(awake));

    std::vector<bench::BatchedPercentiles> results(KindCount);
    std::vector<std::int64_t> sleeping_ratio, awake_ratio;
    std::uint64_t spin_count = 0;
    for (int batch = 0; batch < batches + kWarmUpBatches; ++batch) {
        for (const Kind kind : {Eventfd, RingSleeping, Spin, RingAwake}) {
            const std::uint64_t order = kind + 1U;  // an eventfd says nothing with 0
            require(::write(orders.ping, &order, sizeof(order)) == sizeof(order), "write");
            echo(shared, fds, kind, spin_count);
            read_any(orders.pong);
        }
        if (batch < kWarmUpBatches) {
            continue;
        }
        double p50_us[KindCount];
        for (int kind = 0; kind < KindCount; ++kind) {
            const std::vector<std::int64_t> durations(shared.durations_ns[kind],
                                                      shared.durations_ns[kind] + kRoundsPerBatch);
            results[static_cast<std::size_t>(kind)].add_batch(durations);
            p50_us[kind] = bench::percentile_us(durations, 0.5);
        }
        sleeping_ratio.push_back(static_cast<std::int64_t>(p50_us[RingSleeping] / p50_us[Eventfd] * 1e6));
        awake_ratio.push_back(static_cast<std::int64_t>(p50_us[RingAwake] / p50_us[Spin] * 1e6));
        std::cerr << "\rbatch " << batch - kWarmUpBatches + 1 << " of " << batches << std::flush;
    }
    std::cerr << '\n';
    const std::uint64_t end = KindCount + 1;
    require(::write(orders.ping, &end, sizeof(end)) == sizeof(end), "write");
    int status = 0;
    require(::waitpid(child, &status, 0) == child && status == 0, "the client failed");
    const nlohmann::json result = {{"eventfd_pingpong_us", results[Eventfd].json()},
                                   {"ring_sleeping_us", results[RingSleeping].json()},
                                   {"sleeping_ratio", bench::percentile_us(sleeping_ratio, 0.5) / 1000},
                                   {"spin_pingpong_us", results[Spin].json()},
                                   {"ring_awake_us", results[RingAwake].json()},
                                   {"awake_ratio", bench::percentile_us(awake_ratio, 0.5) / 1000},
                                   {"submit_p99_us", results[SubmitAwake].p99_us()},
                                   {"submit_sleeping_p99_us", results[SubmitSleeping].p99_us()},
                                   {"jobs", sleeper.job_count() + spinner.job_count()}};
    std::cout << result.dump() << '\n';
    return 0;
}

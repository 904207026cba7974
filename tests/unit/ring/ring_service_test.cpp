#include "queue/ring_service.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/hot_path.hpp"
#include "percept/percept.h"
#include "ring_pair.hpp"

using namespace perceptd;
using ring_test::RingPair;

namespace {

/// Odd programs are refused at once; even ones are answered later by another thread.
class Handler final : public queue::RingHandler {
public:
    std::uint32_t on_job(queue::RingId ring, const percept_job_entry& entry) noexcept override {
        if (entry.program_id % 2 == 1) {
            return PERCEPT_JOB_REFUSED;
        }
        return later.push({ring, entry.job_id}) ? 0 : PERCEPT_JOB_DROPPED;
    }
    void on_broken(queue::RingId ring, const char*) noexcept override {
        broken_ring.store(ring);
        ++broken_count;
    }

    struct Later {
        queue::RingId ring;
        std::uint64_t job_id;
    };
    MpscRing<Later> later{4096};
    std::atomic<queue::RingId> broken_ring{0};
    std::atomic<int> broken_count{0};
};

/// The thread of a device: answers what the handler took over.
class Worker {
public:
    Worker(Handler& handler, queue::RingService& service)
        : thread_([this, &handler, &service] {
              Handler::Later job;
              while (!stop_.load()) {
                  if (!handler.later.pop(job)) {
                      std::this_thread::yield();
                      continue;
                  }
                  while (!service.complete(job.ring, {.job_id = job.job_id, .status = PERCEPT_JOB_DONE})) {
                      std::this_thread::yield();
                  }
              }
          }) {}
    ~Worker() {
        stop_ = true;
        thread_.join();
    }

private:
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

std::ptrdiff_t descriptor_count() {
    using Iterator = std::filesystem::directory_iterator;
    return std::distance(Iterator("/proc/self/fd"), Iterator());
}

void await(const std::function<bool()>& condition) {
    for (int i = 0; i < 5000 && !condition(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    REQUIRE(condition());
}

void run_jobs(percept::JobRing& client, std::uint64_t count) {
    percept_job_completion completion;
    for (std::uint64_t id = 1; id <= count; ++id) {
        const std::uint64_t program = id % 3;  // empty, refused, answered later
        if (client.submit({.job_id = id, .program_id = program}) != PERCEPT_OK ||
            client.next(10'000, completion) != PERCEPT_OK || completion.job_id != id ||
            completion.status != (program == 1 ? PERCEPT_JOB_REFUSED : PERCEPT_JOB_DONE)) {
            FAIL("job " << id);
        }
    }
}

void check_many_jobs(std::uint64_t count) {
    Handler handler;
    RingPair pair(20);
    queue::RingService service({.spin_limit_us = 20}, handler);
    Worker worker(handler, service);
    service.add(pair.take_daemon());
    run_jobs(pair.client(), 1000);
    const std::uint64_t allocations = hot_path::allocation_count();
    const auto descriptors = descriptor_count();
    run_jobs(pair.client(), count);
    CHECK(hot_path::allocation_count() == allocations);
    CHECK(descriptor_count() == descriptors);
    CHECK(service.job_count() == 1000 + count);
}

}  // namespace

TEST_CASE("many jobs need no allocation and no descriptor", "[service]") {
    check_many_jobs(30'000);
}

TEST_CASE("a million jobs need no allocation and no descriptor", "[.nightly]") {
    check_many_jobs(1'000'000);
}

TEST_CASE("several clients at once, filled to the brim", "[service]") {
    Handler handler;
    queue::RingService service({.spin_limit_us = 20}, handler);
    Worker worker(handler, service);
    std::vector<std::thread> threads;
    std::atomic<std::uint64_t> answered{0};
    constexpr std::uint64_t kJobs = 5'000;
    for (int i = 0; i < 3; ++i) {
        auto pair = std::make_shared<RingPair>(i == 0 ? 0 : 20);
        service.add(pair->take_daemon());
        threads.emplace_back([pair, &answered] {
            std::uint64_t submitted = 0;
            std::uint64_t next_id = 1;
            percept_job_completion completion;
            while (next_id <= kJobs) {
                while (submitted < kJobs &&
                       pair->client().submit({.job_id = submitted + 1, .program_id = 2}) == PERCEPT_OK) {
                    ++submitted;
                }
                if (pair->client().next(10'000, completion) != PERCEPT_OK || completion.job_id != next_id) {
                    return;
                }
                ++next_id;
                ++answered;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(answered == 3 * kJobs);
}

TEST_CASE("who breaks the contract is served no more, and nobody else notices", "[service]") {
    Handler handler;
    RingPair good;
    RingPair bad;
    queue::RingService service({.spin_limit_us = 0}, handler);
    service.add(good.take_daemon());
    const queue::RingId bad_id = service.add(bad.take_daemon());
    std::atomic_ref<std::uint64_t>(bad.raw().submissions[0].sequence).store(77);
    const std::uint64_t one = 1;
    REQUIRE(::write(bad.bell(), &one, sizeof(one)) == sizeof(one));
    await([&] { return handler.broken_count == 1; });
    CHECK(handler.broken_ring == bad_id);
    percept_job_completion completion;
    REQUIRE(good.client().submit({.job_id = 1}) == PERCEPT_OK);
    CHECK(good.client().next(10'000, completion) == PERCEPT_OK);
    service.remove(bad_id);
    REQUIRE(good.client().submit({.job_id = 2}) == PERCEPT_OK);
    CHECK(good.client().next(10'000, completion) == PERCEPT_OK);
    CHECK(handler.broken_count == 1);
}

TEST_CASE("a client that rings and submits nothing is given up", "[service]") {
    Handler handler;
    RingPair pair;
    queue::RingService service({.spin_limit_us = 0}, handler);
    service.add(pair.take_daemon());
    const std::uint64_t one = 1;
    for (int i = 0; i < 3'000'000 && handler.broken_count == 0; ++i) {
        REQUIRE(::write(pair.bell(), &one, sizeof(one)) == sizeof(one));
    }
    CHECK(handler.broken_count == 1);
}

TEST_CASE("rings come and go while jobs are under way", "[service]") {
    Handler handler;
    queue::RingService service({.spin_limit_us = 5}, handler);
    Worker worker(handler, service);
    const auto descriptors = descriptor_count();
    for (int round = 0; round < 200; ++round) {
        RingPair pair;
        const queue::RingId id = service.add(pair.take_daemon());
        for (std::uint64_t job = 0; job < 50; ++job) {
            REQUIRE(pair.client().submit({.job_id = job, .program_id = job % 3}) == PERCEPT_OK);
        }
        service.remove(id);  // with jobs in flight: their answers find no ring
        service.remove(id);
    }
    CHECK(descriptor_count() == descriptors);
    std::vector<std::unique_ptr<RingPair>> pairs;
    for (std::size_t i = 0; i < queue::RingService::kRingsMax; ++i) {
        pairs.push_back(std::make_unique<RingPair>());
        service.add(pairs.back()->take_daemon());
    }
    CHECK_THROWS_AS(service.add(std::make_unique<queue::JobRing>("one too many")), Error);
}

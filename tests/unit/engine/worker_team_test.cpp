// The worker team: every piece once, barriers hold, cancellation, sleeping and waking, no allocation.
#include "engine/worker_team.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hot_path.hpp"

using namespace perceptd;
using namespace perceptd::engine;

TEST_CASE("every piece is done once, and barriers order the loops") {
    for (const std::size_t workers : {1U, 2U, 3U, 5U}) {
        for (const std::uint32_t spin_us : {0U, 200U}) {
            WorkerTeam team({.worker_count = workers, .cpu_indices = {}, .spin_us = spin_us});
            std::array<int, 100> first{};
            std::array<int, 100> second{};
            auto program = [&](Worker& worker) noexcept {
                for (int round = 0; round < 20; ++round) {
                    worker.share(first.size(), [&](std::size_t i) { ++first[i]; });
                    worker.barrier();
                    // Written by others before the barrier, so the plain int must be visible.
                    worker.share(second.size(), [&](std::size_t i) { second[i] += first[99 - i]; });
                    worker.share(7, [](std::size_t) {});
                    worker.barrier();
                }
            };
            for (int pass = 0; pass < 10; ++pass) {
                REQUIRE(team.run(program));
            }
            for (std::size_t i = 0; i < 100; ++i) {
                REQUIRE(first[i] == 200);
                REQUIRE(second[i] == 200 * 201 / 2);
            }
        }
    }
}

TEST_CASE("a cancelled pass ends at a barrier for all workers alike, and the next pass runs") {
    WorkerTeam team({.worker_count = 3, .cpu_indices = {}, .adapts = false});
    std::array<int, 3> rounds{};
    auto program = [&](Worker& worker) noexcept {
        for (int round = 0; round < 1000 && !worker.cancelled(); ++round) {
            ++rounds[worker.index()];
            if (worker.index() == 1 && round == 10) {
                team.cancel();
            }
            worker.barrier();
        }
    };
    CHECK_FALSE(team.run(program));
    CHECK(rounds[0] == rounds[1]);
    CHECK(rounds[1] == rounds[2]);
    CHECK(rounds[0] == 11);
    auto nothing = [](Worker&) noexcept {};
    CHECK(team.run(nothing));
    std::thread other([&] { team.cancel(); });
    other.join();
    CHECK_FALSE(team.run(nothing));
}

TEST_CASE("sleeping workers wake, and nothing is allocated") {
    WorkerTeam team({.worker_count = 4, .cpu_indices = {0, 0}, .spin_us = 1, .fifo_priority = 0, .adapts = false});
    std::atomic<int> seen{0};
    auto program = [&](Worker& worker) noexcept {
        seen.fetch_add(1);
        worker.traffic.weight_bytes += 10;
    };
    const std::uint64_t before = hot_path::allocation_count();
    {
        const hot_path::Scope hot;
        for (int pass = 0; pass < 20; ++pass) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            team.run(program);
        }
    }
    CHECK(seen.load() == 80);
    CHECK(hot_path::allocation_count() == before);
    CHECK(team.take_traffic().weight_bytes == 800);
    CHECK(team.take_traffic() == TrafficCounter{});
    CHECK_THROWS_AS(WorkerTeam({.worker_count = 0, .cpu_indices = {}}), Error);
    CHECK_THROWS_AS(WorkerTeam({.worker_count = 257, .cpu_indices = {}}), Error);
}

TEST_CASE("two slow passes halve the width for a while, one does not, and trials that fail come more seldom") {
    constexpr std::int64_t kPassNs = kNsPerMs;
    TeamWidth width(4);
    CHECK(width.next() == 4);
    width.observe(kPassNs, kPassNs / 2);
    for (int i = 0; i < 10; ++i) {
        width.observe(kPassNs, kPassNs / 4);
        CHECK(width.next() == 4);
    }
    width.observe(kPassNs, kPassNs / 2);
    width.observe(kPassNs, 0);
    width.observe(kPassNs, kPassNs / 2);
    CHECK(width.next() == 2);
    width.observe(kPassNs, kPassNs / 2);
    width.observe(kPassNs, kPassNs / 2);
    CHECK(width.next() == 1);
    // Now every trial fails. What is spent on trials must become little.
    std::int64_t narrow_ns = 0;
    std::int64_t wide_passes = 0;
    while (narrow_ns < 60'000 * kNsPerMs) {
        if (width.next() == 1) {
            width.observe(kPassNs, 0);
            narrow_ns += kPassNs;
        } else {
            width.observe(kPassNs, kPassNs);
            ++wide_passes;
        }
    }
    CHECK(wide_passes > 60'000 / 640 - 10);
    CHECK(wide_passes < 60'000 / 640 + 10);
    // And the full width comes back, to stay.
    for (int i = 0; i < 4 * 640; ++i) {
        width.observe(kPassNs, 0);
    }
    CHECK(width.next() == 4);
    TeamWidth one(1);
    one.observe(kPassNs, kPassNs);
    CHECK(one.next() == 1);
}

TEST_CASE("a worker that is kept from running is left out, the work is done, and later it is asked again") {
    WorkerTeam team({.worker_count = 2, .cpu_indices = {}, .spin_us = 20});
    std::atomic<bool> hinders{true};
    std::atomic<std::uint64_t> pieces{0};
    std::array<std::atomic<int>, 3> passes_of_width{};
    auto program = [&](Worker& worker) noexcept {
        if (worker.index() == 0) {
            ++passes_of_width[worker.count()];
        } else if (hinders) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        worker.share(64, [&](std::size_t) { ++pieces; });
        worker.barrier();
        worker.share(64, [&](std::size_t) { ++pieces; });
    };
    std::uint64_t passes = 0;
    while (passes_of_width[1] == 0 && passes < 1000) {
        REQUIRE(team.run(program));
        ++passes;
    }
    CHECK(passes_of_width[1] > 0);
    hinders = false;
    passes_of_width[2] = 0;
    while (passes_of_width[2] == 0 && passes < 100'000'000) {
        REQUIRE(team.run(program));
        ++passes;
    }
    CHECK(passes_of_width[2] > 0);
    CHECK(pieces == passes * 128);
}

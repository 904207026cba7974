#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "fence/timeline.hpp"

using perceptd::fence::CounterTimeline;
using perceptd::fence::Fence;
using perceptd::fence::FenceState;

namespace {

constexpr std::uint64_t kPoints = 60'000;
constexpr std::uint64_t kLastGood = 45'000;

struct Tally {
    std::atomic<std::uint64_t> signalled_count{0};
    std::atomic<std::uint64_t> lost_count{0};
    std::atomic<std::uint64_t> wrong_count{0};
    std::atomic<std::uint64_t> stuck_count{0};
};

/// Exports points near the running one and waits for each: a lost wake-up would be a time-out.
void wait_for_points(CounterTimeline& timeline, std::uint32_t seed, const std::atomic<bool>& ended, Tally& tally) {
    std::mt19937 random(seed);
    do {
        const std::uint64_t point = timeline.finished_point() + 1 + random() % 3;
        const Fence fence = timeline.export_point(point);
        const FenceState state = fence.wait_until(perceptd::monotonic_ns() + 30 * perceptd::kNsPerSecond);
        if (state == FenceState::Signalled) {
            ++tally.signalled_count;
            tally.wrong_count += timeline.finished_point() < point;
        } else if (state == FenceState::DeviceLost) {
            ++tally.lost_count;
            tally.wrong_count += point <= kLastGood;
        } else {
            ++tally.stuck_count;
        }
        tally.wrong_count += timeline.state(point) != state;
    } while (!ended.load(std::memory_order_acquire));
}

}  // namespace

TEST_CASE("no wake-up of a timeline is lost, and errors meet only what had not finished", "[timeline]") {
    for (const std::uint32_t seed : {1u, 2u}) {
        CounterTimeline timeline;
        std::atomic<bool> ended{false};
        Tally tally;
        std::vector<std::thread> waiters;
        for (std::uint32_t i = 0; i < 4; ++i) {
            waiters.emplace_back([&, i] { wait_for_points(timeline, seed * 10 + i, ended, tally); });
        }
        for (std::uint64_t point = 1; point <= kPoints; ++point) {
            const bool is_good = point <= kLastGood;
            if (point == kLastGood + 1) {
                std::thread([&] { timeline.fail(); }).join();
            }
            CHECK((timeline.signal(point) == perceptd::Status::Ok) == is_good);
            if (point % 16 == 0) {
                std::this_thread::yield();
            }
        }
        ended.store(true, std::memory_order_release);
        for (std::thread& waiter : waiters) {
            waiter.join();
        }
        REQUIRE(tally.wrong_count == 0);
        REQUIRE(tally.stuck_count == 0);
        REQUIRE(tally.signalled_count + tally.lost_count > 0);
        REQUIRE(timeline.finished_point() == kLastGood);
    }
}

TEST_CASE("a device that is lost while points finish leaves no waiter behind", "[timeline]") {
    for (std::uint32_t round = 0; round < 300; ++round) {
        CounterTimeline timeline;
        std::vector<Fence> fences;
        for (std::uint64_t point = 1; point <= 32; ++point) {
            fences.push_back(timeline.export_point(point));
        }
        std::thread breaker([&] { timeline.fail(); });
        for (std::uint64_t point = 1; point <= 32; ++point) {
            if (timeline.signal(point) != perceptd::Status::Ok) {
                break;
            }
        }
        breaker.join();
        const std::uint64_t finished = timeline.finished_point();
        std::uint64_t wrong_count = 0;
        for (std::uint64_t point = 1; point <= 32; ++point) {
            const FenceState expected = point <= finished ? FenceState::Signalled : FenceState::DeviceLost;
            wrong_count += fences[point - 1].state() != expected;
        }
        REQUIRE(wrong_count == 0);
    }
}

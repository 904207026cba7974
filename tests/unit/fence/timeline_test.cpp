#include "fence/timeline.hpp"

#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"

using perceptd::Error;
using perceptd::ErrorCode;
using perceptd::Status;
using perceptd::fence::CounterTimeline;
using perceptd::fence::Fence;
using perceptd::fence::FenceState;

namespace {

bool is_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

}  // namespace

TEST_CASE("points finish in order, each with all before it") {
    CounterTimeline timeline;
    REQUIRE(timeline.finished_point() == 0);
    REQUIRE(timeline.state(0) == FenceState::Signalled);
    REQUIRE(timeline.state(1) == FenceState::Pending);
    REQUIRE(timeline.signal(1) == Status::Ok);
    REQUIRE(timeline.signal(4) == Status::Ok);
    REQUIRE(timeline.state(3) == FenceState::Signalled);
    REQUIRE(timeline.state(5) == FenceState::Pending);
    REQUIRE(timeline.signal(4) == Status::Late);
    REQUIRE(timeline.signal(2) == Status::Late);
    REQUIRE(timeline.finished_point() == 4);
}

TEST_CASE("an exported point is a pollable fence of its own") {
    CounterTimeline timeline;
    const Fence third = timeline.export_point(3);
    const Fence first = timeline.export_point(1);
    REQUIRE(timeline.signal(2) == Status::Ok);
    REQUIRE(is_readable(first.fd()));
    REQUIRE(first.state() == FenceState::Signalled);
    REQUIRE(third.state() == FenceState::Pending);
    REQUIRE(third.wait_until(perceptd::monotonic_ns() + perceptd::kNsPerMs) == FenceState::TimedOut);
    REQUIRE(timeline.signal(3) == Status::Ok);
    REQUIRE(third.wait_until(perceptd::monotonic_ns() + perceptd::kNsPerSecond) == FenceState::Signalled);
    REQUIRE(timeline.export_point(2).state() == FenceState::Signalled);
    REQUIRE(timeline.export_point(0).state() == FenceState::Signalled);
}

TEST_CASE("a lost device ends every later point and no earlier one") {
    CounterTimeline timeline;
    const Fence done = timeline.export_point(2);
    const Fence lost = timeline.export_point(3);
    REQUIRE(timeline.signal(2) == Status::Ok);
    timeline.fail();
    timeline.fail();
    REQUIRE(done.state() == FenceState::Signalled);
    REQUIRE(is_readable(lost.fd()));
    REQUIRE(lost.state() == FenceState::DeviceLost);
    REQUIRE(lost.wait_until(perceptd::monotonic_ns()) == FenceState::DeviceLost);
    REQUIRE(timeline.state(2) == FenceState::Signalled);
    REQUIRE(timeline.state(1000) == FenceState::DeviceLost);
    REQUIRE(timeline.signal(3) == Status::Ended);
    REQUIRE(timeline.signal(1) == Status::Late);
    REQUIRE(timeline.export_point(9).state() == FenceState::DeviceLost);
    REQUIRE(timeline.export_point(1).state() == FenceState::Signalled);
}

TEST_CASE("fences outlive their timeline and do not wait for ever") {
    auto timeline = std::make_unique<CounterTimeline>();
    const Fence done = timeline->export_point(1);
    const Fence never = timeline->export_point(2);
    REQUIRE(timeline->signal(1) == Status::Ok);
    timeline.reset();
    REQUIRE(done.state() == FenceState::Signalled);
    REQUIRE(never.state() == FenceState::DeviceLost);
}

TEST_CASE("unfinished exports are bounded, and places come back when their point ends") {
    CounterTimeline timeline;
    std::vector<Fence> fences;
    for (std::size_t i = 0; i < CounterTimeline::kFencesMax; ++i) {
        fences.push_back(timeline.export_point(1 + i % 2));
    }
    try {
        static_cast<void>(timeline.export_point(7));
        FAIL("a place too many");
    } catch (const Error& error) {
        REQUIRE(error.code() == ErrorCode::Busy);
        REQUIRE(error.limit == CounterTimeline::kFencesMax);
    }
    REQUIRE(timeline.signal(1) == Status::Ok);
    for (std::size_t i = 0; i < CounterTimeline::kFencesMax / 2; ++i) {
        fences.push_back(timeline.export_point(7));
    }
    REQUIRE_THROWS_AS(timeline.export_point(7), Error);
    REQUIRE(timeline.signal(6) == Status::Ok);
    for (std::size_t i = 0; i < fences.size(); ++i) {
        REQUIRE(fences[i].state() == (i < CounterTimeline::kFencesMax ? FenceState::Signalled : FenceState::Pending));
    }
}

TEST_CASE("the progress descriptor wakes an event loop once per look") {
    CounterTimeline timeline;
    REQUIRE_FALSE(is_readable(timeline.progress_fd()));
    REQUIRE(timeline.signal(1) == Status::Ok);
    REQUIRE(timeline.signal(2) == Status::Ok);
    std::uint64_t count = 0;
    REQUIRE(::read(timeline.progress_fd(), &count, sizeof(count)) == sizeof(count));
    REQUIRE(count == 2);
    REQUIRE(timeline.signal(2) == Status::Late);
    REQUIRE_FALSE(is_readable(timeline.progress_fd()));
    timeline.fail();
    REQUIRE(is_readable(timeline.progress_fd()));
}

#include "base/event_loop.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <stdexcept>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

using perceptd::EventLoop;
using perceptd::UniqueFd;

TEST_CASE("a handler that throws is logged and the loop goes on") {
    EventLoop loop;
    const UniqueFd event(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    int calls = 0;
    const auto source = loop.add_io(event.borrow(), EPOLLIN, [&](std::uint32_t) {
        if (++calls == 3) {
            loop.exit(7);
        }
        throw std::runtime_error("handler");
    });
    REQUIRE(loop.run() == 7);
    REQUIRE(calls == 3);
}

TEST_CASE("a timer runs once and never before its time") {
    EventLoop loop;
    int calls = 0;
    std::int64_t ran_at_ns = 0;
    const auto timer = loop.add_timer([&] {
        ++calls;
        ran_at_ns = perceptd::monotonic_ns();
        loop.defer([&] { loop.exit(0); });
    });
    const std::int64_t at_ns = perceptd::monotonic_ns() + 5 * perceptd::kNsPerMs;
    timer->arm_at(at_ns);
    REQUIRE(loop.run() == 0);
    REQUIRE(calls == 1);
    REQUIRE(ran_at_ns >= at_ns);
}

TEST_CASE("a prepare handler runs before the poll and again after each event") {
    EventLoop loop;
    int prepared = 0;
    const UniqueFd event(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    const auto prepare = loop.add_prepare([&] { ++prepared; });
    int calls = 0;
    const auto source = loop.add_io(event.borrow(), EPOLLIN, [&](std::uint32_t) {
        if (++calls == 2) {
            loop.exit(0);
        }
    });
    REQUIRE(loop.run() == 0);
    REQUIRE(prepared >= 2);
}

TEST_CASE("a removed source is never called") {
    EventLoop loop;
    const UniqueFd event(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    bool called = false;
    auto source = loop.add_io(event.borrow(), EPOLLIN, [&](std::uint32_t) { called = true; });
    source.reset();
    const auto timer = loop.add_timer([&] { loop.exit(0); });
    timer->arm_at(perceptd::monotonic_ns() + perceptd::kNsPerMs);
    REQUIRE(loop.run() == 0);
    REQUIRE_FALSE(called);
}

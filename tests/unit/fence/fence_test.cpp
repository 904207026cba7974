#include "fence/fence.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "base/clock.hpp"

using perceptd::UniqueFd;
using perceptd::fence::Fence;
using perceptd::fence::FenceState;

TEST_CASE("an eventfd fence is pending, times out, and ends when it is written") {
    UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const UniqueFd writer = event.duplicate();
    const Fence fence(std::move(event), Fence::Kind::EventFd);
    REQUIRE(fence.state() == FenceState::Pending);
    const auto deadline_ns = perceptd::monotonic_ns() + 2 * perceptd::kNsPerMs;
    REQUIRE(fence.wait_until(deadline_ns) == FenceState::TimedOut);
    REQUIRE(perceptd::monotonic_ns() >= deadline_ns);
    ssize_t written = -1;
    std::thread signaller([&] {
        const std::uint64_t one = 1;
        written = ::write(writer.borrow(), &one, sizeof(one));
    });
    REQUIRE(fence.wait_until(perceptd::monotonic_ns() + 5 * perceptd::kNsPerSecond) == FenceState::Signalled);
    signaller.join();
    REQUIRE(written == sizeof(std::uint64_t));
    REQUIRE(fence.state() == FenceState::Signalled);
}

TEST_CASE("a readable descriptor that has no fence status is a lost device, not a success") {
    const Fence fence(UniqueFd(::eventfd(1, EFD_CLOEXEC)), Fence::Kind::SyncFile);
    REQUIRE(fence.state() == FenceState::DeviceLost);
}

TEST_CASE("a fence without a descriptor never ends by itself") {
    const Fence fence(UniqueFd(), Fence::Kind::EventFd);
    // ppoll ignores a negative descriptor, so it can only time out.
    REQUIRE(fence.wait_until(0) == FenceState::TimedOut);
}

// One completion: a sync_file of a driver, or an eventfd of our own. Owns the descriptor; never waits on a real-time
// thread.
#pragma once

#include <cstdint>

#include "base/unique_fd.hpp"

namespace perceptd::fence {

enum class FenceState : std::uint8_t {
    Pending,
    Signalled,
    TimedOut,    ///< only from wait_until(): the deadline passed, the fence stays usable
    DeviceLost,  ///< the driver signalled an error: readable alone is not success (kernel: sync_file status < 0)
};

/// What the side that owns an eventfd fence writes into it, once. A lost one is readable but not writable: poll tells
/// them apart in any process, without consuming the count.
inline constexpr std::uint64_t kEventSignalled = 1;
inline constexpr std::uint64_t kEventLost = UINT64_MAX - 1;

/// Move-only. Threads: const functions from any thread. Real-time: state() is one poll and at most one ioctl.
class Fence {
public:
    enum class Kind : std::uint8_t { SyncFile, EventFd };

    Fence(UniqueFd fd, Kind kind) noexcept : fd_(std::move(fd)), kind_(kind) {}

    [[nodiscard]] FenceState state() const noexcept;
    /// Waits until the fence has finished or `deadline_ns` (CLOCK_MONOTONIC) passes. Blocks: never on a real-time
    /// thread.
    [[nodiscard]] FenceState wait_until(std::int64_t deadline_ns) const noexcept;
    /// Borrowed, for poll.
    [[nodiscard]] int fd() const noexcept { return fd_.borrow(); }

private:
    UniqueFd fd_;
    Kind kind_;
};

}  // namespace perceptd::fence

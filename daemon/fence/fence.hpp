// One completion: a sync_file of a driver, an eventfd inside the daemon, or the reading end of a pipe for other
// processes. Owns the descriptor; never waits on a real-time thread.
//
// A pipe says "finished" with a byte and "lost" by its end. Its writer shares no open file with whoever waits, so
// nobody can make the writer block (an eventfd's flags and count belong to all who hold it), and a writer that dies
// says "lost".
#pragma once

#include <cstdint>
#include <optional>

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
    enum class Kind : std::uint8_t { SyncFile, EventFd, Pipe };

    Fence(UniqueFd fd, Kind kind) noexcept : fd_(std::move(fd)), kind_(kind) {}

    [[nodiscard]] FenceState state() const noexcept;
    /// Waits until the fence has finished or `deadline_ns` (CLOCK_MONOTONIC) passes. Blocks: never on a real-time
    /// thread.
    [[nodiscard]] FenceState wait_until(std::int64_t deadline_ns) const noexcept;
    /// Borrowed, for poll.
    [[nodiscard]] int fd() const noexcept { return fd_.borrow(); }
    /// Gives the descriptor up, for a job that waits for it or another process.
    [[nodiscard]] UniqueFd release() noexcept { return std::move(fd_); }
    [[nodiscard]] Kind kind() const noexcept { return kind_; }

private:
    UniqueFd fd_;
    Kind kind_;
};

/// A fence for any process and its writing end: end_pipe() or closing it ends the fence. Throws std::system_error.
struct PipeFence {
    Fence fence;
    UniqueFd writer;
};
[[nodiscard]] PipeFence make_pipe_fence();
/// Ends the fence of `writer`, well or lost. Never blocks; any thread; real-time.
void end_pipe(UniqueFd& writer, bool is_good) noexcept;

/// What kind of fence somebody else's descriptor can be; none: it is no fence. Two system calls.
[[nodiscard]] std::optional<Fence::Kind> kind_of(int fd) noexcept;
/// How a borrowed descriptor of that kind stands; as Fence::state().
[[nodiscard]] FenceState state_of(int fd, Fence::Kind kind) noexcept;

}  // namespace perceptd::fence

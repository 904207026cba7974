// What a queue sleeps on: fences, devices, its own wake-up and the next date, all behind one descriptor. Owns an epoll,
// a timer and an event; borrows what it watches.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace perceptd::queue {

/// Thread-bound but for wake(). Real-time after construction.
class Poller {
public:
    static constexpr std::size_t kReadyMax = 64;

    /// Throws std::system_error.
    Poller();

    /// Readable when there is something to take(). Borrowed.
    [[nodiscard]] int fd() const noexcept { return epoll_.borrow(); }
    /// `token` is told while `watched_fd` is readable. Invalid: not something that can be waited for, or no room.
    [[nodiscard]] Status watch(int watched_fd, std::uint64_t token) noexcept;
    void forget(int watched_fd) noexcept;
    /// fd() becomes readable at `at_ns` (CLOCK_MONOTONIC), kUnlimitedNs: never. One system call when it changes.
    void arm_at(std::int64_t at_ns) noexcept;
    /// fd() becomes readable now. Any thread.
    void wake() noexcept;
    /// The tokens of what is readable, at most kReadyMax; wake-ups and the timer are taken without a token. Valid until
    /// the next call.
    [[nodiscard]] std::span<const std::uint64_t> take() noexcept;

private:
    UniqueFd epoll_;
    UniqueFd timer_;
    UniqueFd event_;
    std::atomic<bool> is_woken_{false};
    std::int64_t armed_ns_ = INT64_MAX;
    std::array<std::uint64_t, kReadyMax> ready_{};
};

}  // namespace perceptd::queue

#include "fence/fence.hpp"

#include <linux/sync_file.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"

namespace perceptd::fence {
namespace {

/// The status of a readable sync_file: 1 signalled, 0 active, negative = the driver's error.
FenceState sync_file_state(int fd) noexcept {
    sync_file_info info{};
    int result = 0;
    do {
        result = ::ioctl(fd, SYNC_IOC_FILE_INFO, &info);
    } while (result != 0 && errno == EINTR);
    if (result != 0 || info.status < 0) {
        return FenceState::DeviceLost;
    }
    return info.status > 0 ? FenceState::Signalled : FenceState::Pending;
}

/// The status of a readable eventfd: no room for another count is how its owner says that it failed.
FenceState event_state(int fd) noexcept {
    pollfd room{fd, POLLOUT, 0};
    return ::poll(&room, 1, 0) > 0 && (room.revents & POLLOUT) != 0 ? FenceState::Signalled : FenceState::DeviceLost;
}

FenceState state_within(int fd, Fence::Kind kind, std::int64_t wait_ns) noexcept {
    pollfd waiting{fd, POLLIN, 0};
    const timespec limit{wait_ns / kNsPerSecond, wait_ns % kNsPerSecond};
    const int ready = ::ppoll(&waiting, 1, &limit, nullptr);
    if (ready < 0) {
        return errno == EINTR ? FenceState::Pending : FenceState::DeviceLost;
    }
    if (ready == 0) {
        return FenceState::Pending;
    }
    if ((waiting.revents & (POLLERR | POLLNVAL)) != 0) {
        return FenceState::DeviceLost;
    }
    return kind == Fence::Kind::SyncFile ? sync_file_state(fd) : event_state(fd);
}

}  // namespace

FenceState Fence::state() const noexcept {
    return state_within(fd_.borrow(), kind_, 0);
}

FenceState Fence::wait_until(std::int64_t deadline_ns) const noexcept {
    for (;;) {
        const std::int64_t left_ns = deadline_ns - monotonic_ns();
        const FenceState now = state_within(fd_.borrow(), kind_, std::max<std::int64_t>(left_ns, 0));
        if (now != FenceState::Pending) {
            return now;
        }
        if (left_ns <= 0) {
            return FenceState::TimedOut;
        }
    }
}

}  // namespace perceptd::fence

#include "fence/fence.hpp"

#include <fcntl.h>
#include <linux/sync_file.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "base/clock.hpp"
#include "base/error.hpp"

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
    switch (kind) {
        case Fence::Kind::SyncFile: return sync_file_state(fd);
        case Fence::Kind::EventFd: return event_state(fd);
        case Fence::Kind::Pipe:
            return (waiting.revents & POLLIN) != 0 ? FenceState::Signalled
                                                   : FenceState::DeviceLost;  // its end came first
    }
    return FenceState::DeviceLost;
}

}  // namespace

FenceState Fence::state() const noexcept {
    return state_within(fd_.borrow(), kind_, 0);
}

PipeFence make_pipe_fence() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        throw_errno("pipe2");
    }
    return {Fence(UniqueFd(ends[0]), Fence::Kind::Pipe), UniqueFd(ends[1])};
}

void end_pipe(UniqueFd& writer, bool is_good) noexcept {
    if (writer && is_good) {
        // A pipe that its reader has filled, or without a reader, is nobody's loss but the reader's.
        static_cast<void>(!::write(writer.borrow(), "", 1));
    }
    writer.reset();
}

std::optional<Fence::Kind> kind_of(int fd) noexcept {
    struct stat about {};
    if (::fstat(fd, &about) != 0) {
        return std::nullopt;
    }
    if (S_ISFIFO(about.st_mode)) {
        return Fence::Kind::Pipe;
    }
    sync_file_info info{};
    if (::ioctl(fd, SYNC_IOC_FILE_INFO, &info) == 0) {
        return Fence::Kind::SyncFile;
    }
    char path[40];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    char target[40];
    const ssize_t length = ::readlink(path, target, sizeof(target));
    const std::string_view name(target, length > 0 ? static_cast<std::size_t>(length) : 0);
    return name == "anon_inode:[eventfd]" ? std::optional(Fence::Kind::EventFd) : std::nullopt;
}

FenceState state_of(int fd, Fence::Kind kind) noexcept {
    return state_within(fd, kind, 0);
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

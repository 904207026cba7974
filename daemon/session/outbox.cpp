#include "session/outbox.hpp"

#include <algorithm>
#include <array>

namespace perceptd::session {
namespace {

constexpr std::size_t kWaitingPacketsMax = 8;

}  // namespace

Status Outbox::send(Channel& channel, std::span<const std::byte> bytes, std::span<const int> fds) {
    if (waiting_.empty()) {
        switch (channel.send(bytes, fds)) {
            case Status::Ok: return Status::Ok;
            case Status::Again: break;
            default: return Status::Ended;
        }
    }
    if (waiting_.size() >= kWaitingPacketsMax) {
        return Status::Full;
    }
    Waiting& waiting = waiting_.emplace_back();
    waiting.bytes.assign(bytes.begin(), bytes.end());
    for (const int fd : fds) {
        const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (copy < 0) {
            throw_errno("fcntl(F_DUPFD_CLOEXEC)");
        }
        waiting.fds.emplace_back(copy);
    }
    return Status::Again;
}

Status Outbox::flush(Channel& channel) noexcept {
    while (!waiting_.empty()) {
        std::array<int, kPacketFdsMax> fds{};
        const Waiting& next = waiting_.front();
        std::transform(next.fds.begin(), next.fds.end(), fds.begin(), [](const UniqueFd& fd) { return fd.borrow(); });
        switch (channel.send(next.bytes, {fds.data(), next.fds.size()})) {
            case Status::Ok: waiting_.pop_front(); break;
            case Status::Again: return Status::Again;
            default: return Status::Ended;
        }
    }
    return Status::Ok;
}

}  // namespace perceptd::session

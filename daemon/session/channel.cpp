#include "session/channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::session {
namespace {

constexpr int kPeerPidfd = 77;       // SO_PEERPIDFD, Linux 6.5: the headers may be older than the kernel
constexpr int kStartTimeField = 22;  // of /proc/<pid>/stat
constexpr std::size_t kControlBytes = CMSG_SPACE(kPacketFdsMax * sizeof(int));

/// Takes every descriptor the kernel installed. False when there were more than a packet may carry.
bool take_fds(msghdr& header, Packet& packet) noexcept {
    bool fits = true;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
            UniqueFd owned(fd);
            if (packet.fd_count < kPacketFdsMax) {
                packet.fds[packet.fd_count++] = std::move(owned);
            } else {
                fits = false;  // `owned` closes it
            }
        }
    }
    return fits;
}

/// A handle of the process at the other end: exactly that one where the kernel can tell, else what has its pid now.
UniqueFd process_of(int socket_fd, pid_t pid) noexcept {
    int fd = -1;
    socklen_t size = sizeof(fd);
    if (::getsockopt(socket_fd, SOL_SOCKET, kPeerPidfd, &fd, &size) != 0) {
        fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    }
    return UniqueFd(fd);
}

/// When the process at the other end was started; 0 when it is gone or in another namespace. It is taken while a handle
/// says that the process lives, so that it is not the start of a later one with the same pid.
std::uint64_t start_time_of(int socket_fd, pid_t pid) {
    if (pid <= 0) {
        return 0;
    }
    const UniqueFd process = process_of(socket_fd, pid);
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!process || !std::getline(file, line)) {
        return 0;
    }
    // The second field is the program's name in parentheses, with any characters at all in it.
    std::size_t at = line.rfind(')');
    for (int field = 2; at != std::string::npos && field < kStartTimeField; ++field) {
        at = line.find(' ', at + 1);
    }
    pollfd ended{process.borrow(), POLLIN, 0};
    const bool lives = ::poll(&ended, 1, 0) == 0;
    return lives && at != std::string::npos ? std::strtoull(line.c_str() + at + 1, nullptr, 10) : 0;
}

int socket_option(int fd, int option) {
    int value = 0;
    socklen_t size = sizeof(value);
    if (::getsockopt(fd, SOL_SOCKET, option, &value, &size) != 0) {
        throw_errno("getsockopt");
    }
    return value;
}

}  // namespace

void Packet::clear() noexcept {
    for (std::size_t i = 0; i < fd_count; ++i) {
        fds[i].reset();
    }
    fd_count = 0;
    bytes = {};
}

Channel::Channel(UniqueFd socket) : socket_(std::move(socket)) {
    if (socket_option(socket_.borrow(), SO_DOMAIN) != AF_UNIX ||
        socket_option(socket_.borrow(), SO_TYPE) != SOCK_SEQPACKET) {
        throw Error(ErrorCode::InvalidArgument, "a channel must be an AF_UNIX socket of type SOCK_SEQPACKET");
    }
    const int flags = ::fcntl(socket_.borrow(), F_GETFL);
    if (flags < 0 || ::fcntl(socket_.borrow(), F_SETFL, flags | O_NONBLOCK) != 0) {
        throw_errno("fcntl(O_NONBLOCK)");
    }
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(kPacketBytesMax);
}

Status Channel::receive(Packet& packet) noexcept {
    packet.clear();
    if (!socket_) {
        return Status::Ended;
    }
    iovec part{buffer_.get(), kPacketBytesMax};
    alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t size = -1;
    do {
        size = ::recvmsg(socket_.borrow(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (size < 0 && errno == EINTR);
    if (size < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? Status::Again : Status::Ended;
    }
    // The kernel installs as many descriptors as fit even when it reports truncation: take them first, then judge.
    const bool fits = take_fds(header, packet);
    if (!fits || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        packet.clear();
        return Status::Invalid;
    }
    if (size == 0) {
        packet.clear();
        return Status::Ended;
    }
    packet.bytes = {buffer_.get(), static_cast<std::size_t>(size)};
    return Status::Ok;
}

Status Channel::send(std::span<const std::byte> bytes, std::span<const int> fds) noexcept {
    PERCEPTD_ASSERT(fds.size() <= kPacketFdsMax);
    if (!socket_) {
        return Status::Ended;
    }
    if (bytes.size() > kPacketBytesMax) {
        return Status::Invalid;
    }
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(item), fds.data(), fds.size_bytes());
    }
    ssize_t sent = -1;
    do {
        sent = ::sendmsg(socket_.borrow(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        return Status::Ok;
    }
    switch (errno) {
        case EAGAIN:
        case ENOBUFS:
        case ENOMEM:
        case ETOOMANYREFS:  // too many descriptors in flight to clients that do not read
            return Status::Again;
        case EMSGSIZE: return Status::Invalid;
        default: return Status::Ended;
    }
}

Peer Channel::peer() const {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (::getsockopt(socket_.borrow(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
        throw_errno("getsockopt(SO_PEERCRED)");
    }
    return Peer{.uid = credentials.uid,
                .gid = credentials.gid,
                .pid = credentials.pid,
                .start_time_ticks = start_time_of(socket_.borrow(), credentials.pid),
                .bus_name = {}};
}

ChannelPair make_channel_pair() {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        throw_errno("socketpair");
    }
    return ChannelPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace perceptd::session

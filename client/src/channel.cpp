#include "channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>

#include "failure.hpp"

namespace percept {
namespace {

constexpr std::size_t kPacketBytesMax = 64 * 1024;
constexpr std::size_t kDescriptorsMax = 8;

UniqueFd checked_socket(UniqueFd socket) {
    int type = 0;
    socklen_t size = sizeof(type);
    if (::getsockopt(socket.borrow(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT,
                      "the channel is not a SOCK_SEQPACKET socket: pass the descriptor that perceptd handed out");
    }
    return socket;
}

[[noreturn]] void throw_disconnected() {
    throw Failure(PERCEPT_ERROR_DISCONNECTED,
                  "perceptd closed the session: see 'journalctl -u perceptd' for the reason, then connect again");
}

/// Takes every descriptor of the packet, so that none leaks whatever is wrong with it.
std::vector<UniqueFd> take_descriptors(msghdr& header) {
    std::vector<UniqueFd> descriptors;
    for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
            descriptors.emplace_back(fd);
        }
    }
    return descriptors;
}

}  // namespace

Channel Channel::connect(const std::string& socket_path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket_path.empty() || socket_path.size() >= sizeof(address.sun_path)) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT,
                      "the socket path must have 1 to 107 bytes: '" + socket_path + "'");
    }
    std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size());
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket) {
        throw_system("socket");
    }
    if (::connect(socket.borrow(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        switch (errno) {
            case ENOENT:
            case ECONNREFUSED:
                throw Failure(PERCEPT_ERROR_NOT_RUNNING,
                              "perceptd is not running (nobody listens on " + socket_path +
                                  "): start it with 'systemctl start perceptd', or name the socket of a running one");
            case EACCES:
            case EPERM:
                throw Failure(PERCEPT_ERROR_NOT_AUTHORIZED,
                              "no permission to open " + socket_path +
                                  ": 'ls -l' shows the group that may; add your user to it and log in again");
            case EPROTOTYPE:
                throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT,
                              socket_path + " is another program's socket: pass perceptd's channel socket");
            default: throw_system("connecting to " + socket_path);
        }
    }
    return Channel(std::move(socket));
}

Channel::Channel(UniqueFd socket) : socket_(checked_socket(std::move(socket))), bytes_(kPacketBytesMax, '\0') {}

bool Channel::send(const perceptd::v1::ClientMessage& message) {
    const std::string bytes = message.SerializeAsString();
    while (::send(socket_.borrow(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        switch (errno) {
            case EINTR: continue;
            case EAGAIN: return false;
            case EPIPE:
            case ECONNRESET: throw_disconnected();
            default: throw_system("sending to perceptd");
        }
    }
    return true;
}

std::optional<Packet> Channel::receive() {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
    iovec vector{bytes_.data(), bytes_.size()};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t received = -1;
    bool was_reset = false;
    while ((received = ::recvmsg(socket_.borrow(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
        if (errno == ECONNRESET && !was_reset) {
            // The daemon closed with our bytes unread: the kernel says so once, before what the daemon had sent.
            was_reset = true;
        } else if (errno != EINTR) {
            break;
        }
    }
    if (received < 0) {
        if (errno == EAGAIN) {
            return std::nullopt;
        }
        if (errno == ECONNRESET) {
            throw_disconnected();
        }
        throw_system("receiving from perceptd");
    }
    Packet packet;
    packet.descriptors = take_descriptors(header);
    if (received == 0) {
        throw_disconnected();
    }
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        throw_protocol("a packet over 64 KiB or 8 descriptors");
    }
    if (!packet.message.ParseFromArray(bytes_.data(), static_cast<int>(received))) {
        throw_protocol("bytes that are no message");
    }
    return packet;
}

WaitResult Channel::wait(int timeout_ms, bool also_writable) const {
    pollfd entry{socket_.borrow(), static_cast<short>(also_writable ? POLLIN | POLLOUT : POLLIN), 0};
    const int ready = ::poll(&entry, 1, timeout_ms);
    if (ready < 0) {
        if (errno == EINTR) {
            return WaitResult::Interrupted;
        }
        throw_system("poll");
    }
    if (ready == 0) {
        return WaitResult::TimedOut;
    }
    return (entry.revents & ~POLLOUT) != 0 ? WaitResult::Readable : WaitResult::Writable;
}

}  // namespace percept

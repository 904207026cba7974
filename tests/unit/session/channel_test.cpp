// Channel: whole packets, and no descriptor of a refused one survives.
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>

#include "session_fixture.hpp"

using namespace perceptd;
using namespace perceptd::session;
using namespace perceptd::session::test;

TEST_CASE("a packet arrives whole, with its descriptors closed on exec") {
    ChannelPair pair = make_channel_pair();
    Client client(std::move(pair.client_end));
    Channel channel(std::move(pair.daemon_end));
    Packet packet;
    REQUIRE(channel.receive(packet) == Status::Again);
    const std::size_t before = open_fd_count();
    UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    REQUIRE(client.send_fds("abc", std::vector<int>(8, event.borrow())));
    event.reset();
    REQUIRE(channel.receive(packet) == Status::Ok);
    CHECK(packet.bytes.size() == 3);
    REQUIRE(packet.fd_count == 8);
    CHECK((::fcntl(packet.fds[7].borrow(), F_GETFD) & FD_CLOEXEC) != 0);
    packet.clear();
    CHECK(open_fd_count() == before);
}

TEST_CASE("too many descriptors or bytes are refused and nothing leaks") {
    ChannelPair pair = make_channel_pair();
    Client client(std::move(pair.client_end));
    Channel channel(std::move(pair.daemon_end));
    Packet packet;
    UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    const std::size_t before = open_fd_count();
    for (const std::size_t count : {9u, 10u, 250u}) {
        REQUIRE(client.send_fds("abc", std::vector<int>(count, event.borrow())));
        CHECK(channel.receive(packet) == Status::Invalid);
        CHECK(open_fd_count() == before);
    }
    REQUIRE(client.send_bytes(std::string(kPacketBytesMax, 'x')));
    CHECK(channel.receive(packet) == Status::Ok);
    REQUIRE(client.send_bytes(std::string(kPacketBytesMax + 1, 'x')));
    CHECK(channel.receive(packet) == Status::Invalid);
    REQUIRE(client.send_fds(std::string(kPacketBytesMax + 1, 'x'), std::vector<int>(4, event.borrow())));
    CHECK(channel.receive(packet) == Status::Invalid);
    CHECK(open_fd_count() == before);
    client.close();
    CHECK(channel.receive(packet) == Status::Ended);
}

TEST_CASE("only a seqpacket socket becomes a channel, and the kernel says who is there") {
    UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    CHECK_THROWS(Channel(event.duplicate()));
    UniqueFd datagram(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    CHECK_THROWS_AS(Channel(std::move(datagram)), Error);
    ChannelPair pair = make_channel_pair();
    const Peer peer = Channel(std::move(pair.daemon_end)).peer();
    CHECK(peer.uid == ::getuid());
    CHECK(peer.pid == ::getpid());
}

namespace {

/// Connects to `listener` from a child process, which ends at once if it is told to. Gives back the accepted end.
UniqueFd accept_from_child(int listener, const sockaddr_un& address, socklen_t size, bool ends, pid_t& child) {
    child = ::fork();
    if (child == 0) {
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        const int connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), size);
        if (!ends) {
            ::pause();
        }
        ::_exit(connected == 0 ? 0 : 1);
    }
    if (ends) {
        ::waitpid(child, nullptr, 0);
    }
    return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
}

}  // namespace

TEST_CASE("a peer is its process and that one's start, or nobody once it has ended") {
    const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const socklen_t family_alone = sizeof(sa_family_t);  // the kernel picks an abstract name
    REQUIRE(::bind(listener.borrow(), reinterpret_cast<const sockaddr*>(&address), family_alone) == 0);
    socklen_t size = sizeof(address);
    REQUIRE(::getsockname(listener.borrow(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    REQUIRE(::listen(listener.borrow(), 4) == 0);
    pid_t child = 0;
    const Peer living = Channel(accept_from_child(listener.borrow(), address, size, false, child)).peer();
    std::uint64_t started_ticks = 0;
    std::FILE* const file = std::fopen(("/proc/" + std::to_string(child) + "/stat").c_str(), "re");
    REQUIRE(file != nullptr);
    CHECK(std::fscanf(file, "%*d %*s %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu",
                      &started_ticks) == 1);
    std::fclose(file);
    CHECK(living.pid == child);
    CHECK(living.start_time_ticks == started_ticks);
    CHECK(started_ticks > 0);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const Peer ended = Channel(accept_from_child(listener.borrow(), address, size, true, child)).peer();
    CHECK(ended.start_time_ticks == 0);
}

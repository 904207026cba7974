// Channel: whole packets, and no descriptor of a refused one survives.
#include <sys/eventfd.h>

#include <catch2/catch.hpp>

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

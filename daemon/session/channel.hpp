// One SOCK_SEQPACKET connection: whole packets with their descriptors, in and out, without waiting.
// Owns the socket and, in a Packet, every descriptor that arrived.
// Never looks inside a packet, never blocks, never lets a descriptor of a refused packet live.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "session/authority.hpp"

namespace perceptd::session {

inline constexpr std::size_t kPacketBytesMax = 64 * 1024;
inline constexpr std::size_t kPacketFdsMax = 8;

/// One received packet. `bytes` points into the channel and is valid until its next receive().
struct Packet {
    std::span<const std::byte> bytes;
    std::array<UniqueFd, kPacketFdsMax> fds;
    std::size_t fd_count = 0;

    /// Closes the descriptors that nobody took.
    void clear() noexcept;
};

/// Move-only. Thread-bound (main thread).
class Channel {
public:
    /// Takes a connected SOCK_SEQPACKET socket and makes it non-blocking. Throws Error(InvalidArgument) for any other
    /// kind of descriptor, std::system_error when the kernel refuses.
    explicit Channel(UniqueFd socket);
    Channel(Channel&&) noexcept = default;
    Channel& operator=(Channel&&) noexcept = default;

    /// Ok: one packet is in `packet`. Again: nothing now. Ended: the peer closed (or sent an empty packet). Invalid:
    /// the packet was longer than kPacketBytesMax or carried more than kPacketFdsMax descriptors; it is dropped and all
    /// of its descriptors are closed.
    Status receive(Packet& packet) noexcept;
    /// Ok: sent whole. Again: the peer's queue is full, nothing was sent. Ended: the peer is gone. Invalid: the packet
    /// is too large for the socket. `fds` are borrowed.
    Status send(std::span<const std::byte> bytes, std::span<const int> fds = {}) noexcept;

    /// Who connected, by SO_PEERCRED. For a socketpair that is its maker: such a session gets its peer from the bus.
    /// Throws std::system_error.
    [[nodiscard]] Peer peer() const;

    [[nodiscard]] int borrow() const noexcept { return socket_.borrow(); }
    void close() noexcept { socket_.reset(); }

private:
    UniqueFd socket_;
    std::unique_ptr<std::byte[]> buffer_;  ///< kPacketBytesMax; pages are touched as far as packets reach
};

/// A connected pair for a session opened over D-Bus: the daemon's end and the client's. Throws std::system_error.
struct ChannelPair {
    UniqueFd daemon_end;
    UniqueFd client_end;
};
ChannelPair make_channel_pair();

}  // namespace perceptd::session

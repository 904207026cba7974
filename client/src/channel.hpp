// The socket of a session: whole protobuf messages and their descriptors, in and out.
// Owns the socket.
// Never interprets a message and never blocks while sending.
#pragma once

#include <perceptd/v1/channel.pb.h>

#include <optional>
#include <string>
#include <vector>

#include "unique_fd.hpp"

namespace percept {

/// One packet of the daemon.
struct Packet {
    perceptd::v1::ServerMessage message;
    std::vector<UniqueFd> descriptors;
};

enum class WaitResult { Readable, Writable, TimedOut, Interrupted };

class Channel {
public:
    /// Throws Failure: not running, not authorized, system.
    [[nodiscard]] static Channel connect(const std::string& socket_path);

    /// Takes over a connected SOCK_SEQPACKET socket; throws Failure (invalid argument) for anything else.
    explicit Channel(UniqueFd socket);

    [[nodiscard]] int fd() const noexcept { return socket_.borrow(); }

    /// Sends one packet; false = the socket is full, try when writable. Throws Failure.
    [[nodiscard]] bool send(const perceptd::v1::ClientMessage& message);

    /// The next packet, or nothing when none is there. Throws Failure: disconnected, protocol.
    [[nodiscard]] std::optional<Packet> receive();

    /// Waits up to timeout_ms (-1 = for ever) for a packet or, on demand, for room to send.
    [[nodiscard]] WaitResult wait(int timeout_ms, bool also_writable) const;

private:
    UniqueFd socket_;
    std::string bytes_;
};

}  // namespace percept

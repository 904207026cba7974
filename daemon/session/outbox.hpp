// The control packets of a channel that wait for room in the socket, in order.
// Owns copies of the packets and duplicates of their descriptors.
// Never waits, and never grows beyond a few packets: a peer that does not read is told apart from a slow one.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "session/channel.hpp"

namespace perceptd::session {

/// Thread-bound (main thread).
class Outbox {
public:
    /// Ok: sent. Again: kept until flush(). Full: too many wait already. Ended: the peer is gone, or the packet does
    /// not fit the socket. Throws std::system_error when a descriptor cannot be duplicated.
    Status send(Channel& channel, std::span<const std::byte> bytes, std::span<const int> fds);
    /// Ok: nothing waits any more. Again: the socket is full. Ended: as above.
    Status flush(Channel& channel) noexcept;
    [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
    void clear() noexcept { waiting_.clear(); }

private:
    struct Waiting {
        std::vector<std::byte> bytes;
        std::vector<UniqueFd> fds;
    };
    std::deque<Waiting> waiting_;
};

}  // namespace perceptd::session

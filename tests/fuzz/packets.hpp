// Cuts a fuzzer's bytes into packets: two bytes of length, little endian, then the packet. Owns nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fuzz {

/// The next packet, or an empty span at the end. A length past the end takes what is there.
inline std::span<const std::uint8_t> next_packet(std::span<const std::uint8_t>& bytes) {
    if (bytes.size() < 2) {
        bytes = {};
        return {};
    }
    const std::size_t wanted = bytes[0] | std::size_t{bytes[1]} << 8;
    bytes = bytes.subspan(2);
    const auto packet = bytes.first(std::min(wanted, bytes.size()));
    bytes = bytes.subspan(packet.size());
    return packet;
}

}  // namespace fuzz

// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of journal records. Owns a table. Never a proof against malice:
// it finds torn and rotten bytes, the folder's mode keeps people out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace perceptd::store {

namespace detail {

constexpr std::array<std::uint32_t, 256> make_crc32c_table() noexcept {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) {
            value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
        }
        table[byte] = value;
    }
    return table;
}

inline constexpr std::array<std::uint32_t, 256> kCrc32cTable = make_crc32c_table();

}  // namespace detail

/// The checksum of `bytes`. Real-time safe.
[[nodiscard]] constexpr std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
    std::uint32_t value = ~0u;
    for (const std::byte byte : bytes) {
        value = detail::kCrc32cTable[(value ^ std::to_integer<std::uint32_t>(byte)) & 0xff] ^ (value >> 8);
    }
    return ~value;
}

}  // namespace perceptd::store

// The same weights as make_block_golden.py, and hexadecimal text to bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace perceptd::model::test {

inline std::vector<std::uint32_t> lcg(std::uint32_t state, std::size_t count) {
    std::vector<std::uint32_t> out(count);
    for (std::uint32_t& value : out) {
        state = state * 1664525u + 1013904223u;
        value = state >> 16;
    }
    return out;
}

inline std::vector<float> lcg_weights(std::uint32_t seed, std::size_t count) {
    std::vector<float> out;
    for (const std::uint32_t value : lcg(seed, count)) {
        out.push_back((static_cast<float>(value) - 32768.0F) / 4096.0F);
    }
    return out;
}

inline std::vector<std::byte> from_hex(std::string_view text) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<std::byte>(digit(text[i]) * 16 + digit(text[i + 1])));
    }
    return bytes;
}

}  // namespace perceptd::model::test

// Random numbers as a pure function of (seed, stream, index): any sample can be made alone and in any order.
// Owns nothing; SplitMix64's finaliser over mixed keys.
// Never holds state, never allocates.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace perceptd::sensor {

/// SplitMix64's finaliser: a bijection that spreads every input bit.
constexpr std::uint64_t mixed_bits(std::uint64_t key) noexcept {
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ULL;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebULL;
    return key ^ (key >> 31);
}

/// 64 random bits for `index` of `stream`. Real-time safe.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
    const std::uint64_t key = mixed_bits(mixed_bits(seed + kGolden) ^ (stream * kGolden));
    return mixed_bits(key + (index + 1) * kGolden);
}

/// Uniform in the open interval (0, 1). Real-time safe.
inline double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
    return (static_cast<double>(random_bits(seed, stream, index) >> 11) + 0.5) * 0x1p-53;
}

/// Normal with mean 0 and standard deviation 1 (Box-Muller). Real-time safe.
inline double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
    const double radius = std::sqrt(-2.0 * std::log(random_uniform(seed, stream, 2 * index)));
    return radius * std::cos(2.0 * std::numbers::pi * random_uniform(seed, stream, 2 * index + 1));
}

/// Exponential with mean 1. Real-time safe.
inline double random_exponential(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
    return -std::log(random_uniform(seed, stream, index));
}

}  // namespace perceptd::sensor

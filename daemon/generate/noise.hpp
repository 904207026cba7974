// The noise that decides a sampled token: one Gumbel number per (request seed, position, token), made from a counter so
// that target, draft, verification and a resumed generation all see the same. Owns its key. Never holds a state that a
// call could change, never depends on the machine.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "generate/portable_math.hpp"
#include "sensor/counter_rng.hpp"

namespace perceptd::generate {

/// The noise of one position of one request. Real-time safe, reentrant.
class Noise {
public:
    constexpr Noise(std::uint64_t seed, std::uint32_t position) noexcept : seed_(seed), position_(position) {}

    /// 64 uniform bits; gumbel_of() takes the upper 52.
    [[nodiscard]] constexpr std::uint64_t bits(std::uint32_t token) const noexcept {
        return sensor::random_bits(seed_, position_, token);
    }
    /// -log(-log u), u = (2k + 1) / 2^53 with k the upper 52 bits: never 0 or 1, so finite: -3.7 to 36.8.
    [[nodiscard]] static double gumbel_of(std::uint64_t bits) noexcept {
        const double u = (2.0 * static_cast<double>(bits >> 12) + 1.0) * 0x1p-53;
        return -portable_log(-portable_log(u));
    }
    /// At least gumbel_of(bits), without a logarithm: -log u >= 1 - u > 2^-(z+1) for z leading ones, and a little for
    /// rounding. Most tokens of a vocabulary cannot win and are passed over by it.
    [[nodiscard]] static double bound_of(std::uint64_t bits) noexcept {
        return (std::min(std::countl_one(bits), 52) + 1) * 0.69314718056 + 1e-9;
    }
    [[nodiscard]] double gumbel(std::uint32_t token) const noexcept { return gumbel_of(bits(token)); }

private:
    std::uint64_t seed_;
    std::uint32_t position_;
};

}  // namespace perceptd::generate

#include "generate/noise.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "noise_golden.hpp"

namespace perceptd::generate {

TEST_CASE("noise has the bits of the golden values, which another language made") {
    for (const test::GoldenNoise& golden : test::kGoldenNoise) {
        const Noise noise(golden.seed, golden.position);
        CAPTURE(golden.seed, golden.position, golden.token);
        CHECK(noise.bits(golden.token) == golden.bits);
        CHECK(std::bit_cast<std::uint64_t>(noise.gumbel(golden.token)) == golden.gumbel_bits);
        CHECK(noise.gumbel(golden.token) == Approx(golden.gumbel).epsilon(1e-14));
    }
}

TEST_CASE("logarithm and exponential are within two units in the last place of the C library's") {
    double log_error = 0;
    double exp_error = 0;
    for (std::uint64_t i = 0; i < 200000; ++i) {
        const double x = std::exp(sensor::random_uniform(1, 0, i) * 80 - 40);
        const double y = -50 * sensor::random_uniform(1, 1, i);
        constexpr double kUnit = std::numeric_limits<double>::epsilon();
        log_error = std::max(log_error, std::abs(portable_log(x) - std::log(x)) / std::abs(std::log(x)) / kUnit);
        exp_error = std::max(exp_error, std::abs(portable_exp(y) - std::exp(y)) / std::exp(y) / kUnit);
    }
    CHECK(log_error < 2);
    CHECK(exp_error < 2);
    CHECK(portable_log(1) == 0);
    CHECK(portable_exp(0) == 1);
    CHECK(portable_exp(-701) == 0);
}

TEST_CASE("noise is finite at both ends and its bound is one") {
    CHECK(Noise::gumbel_of(0) == Approx(-std::log(53 * std::log(2.0))));
    CHECK(Noise::gumbel_of(~0ULL) == Approx(53 * std::log(2.0)));
    for (int ones = 0; ones <= 64; ++ones) {
        const std::uint64_t lowest = ones == 0 ? 0 : ~0ULL << (64 - ones);
        // The largest number with so many leading ones: the next bit is 0, all others are 1.
        const std::uint64_t highest = ones >= 63 ? lowest : lowest | (~0ULL >> (ones + 1));
        CHECK(Noise::bound_of(lowest) >= Noise::gumbel_of(lowest));
        CHECK(Noise::bound_of(highest) >= Noise::gumbel_of(highest));
    }
    for (std::uint32_t token = 0; token < 100000; ++token) {
        const std::uint64_t bits = Noise(7, 3).bits(token);
        REQUIRE(Noise::bound_of(bits) >= Noise::gumbel_of(bits));
    }
}

TEST_CASE("noise has a Gumbel distribution and neighbours do not know of each other") {
    constexpr int kCount = 200000;
    double sum = 0;
    double square = 0;
    double with_next_token = 0;
    double with_next_position = 0;
    double with_next_seed = 0;
    const double mean = 0.57721566490153286;
    for (std::uint32_t i = 0; i < kCount; ++i) {
        const double g = Noise(5, i / 400).gumbel(i % 400) - mean;
        sum += g;
        square += g * g;
        with_next_token += g * (Noise(5, i / 400).gumbel(i % 400 + 1) - mean);
        with_next_position += g * (Noise(5, i / 400 + 1).gumbel(i % 400) - mean);
        with_next_seed += g * (Noise(6, i / 400).gumbel(i % 400) - mean);
    }
    const double variance = 9.8696044010893586 / 6;
    const double four_sigma = 4 * variance / std::sqrt(double{kCount});
    CHECK(std::abs(sum / kCount) < 4 * std::sqrt(variance / kCount));
    CHECK(square / kCount == Approx(variance).epsilon(0.02));
    CHECK(std::abs(with_next_token / kCount) < four_sigma);
    CHECK(std::abs(with_next_position / kCount) < four_sigma);
    CHECK(std::abs(with_next_seed / kCount) < four_sigma);
}

}  // namespace perceptd::generate

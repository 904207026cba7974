// Number formats against their closed forms: decoding by ldexp, encoding by search for the nearest code.
#include "engine/number_formats.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

using namespace perceptd::engine;

namespace {

double fp8_value(unsigned code, int mantissa_bits, int bias) {
    const unsigned exponent = (code & 0x7FU) >> mantissa_bits;
    const unsigned mantissa = code & ((1U << mantissa_bits) - 1U);
    const int e = exponent == 0 ? 1 - bias : static_cast<int>(exponent) - bias;
    const double m = std::ldexp(mantissa, -mantissa_bits) + (exponent == 0 ? 0.0 : 1.0);
    return std::ldexp(m, e) * ((code & 0x80U) != 0 ? -1.0 : 1.0);
}

/// The nearest finite code, ties to the even one, in a table that goes on one binade beyond the format.
unsigned nearest(double magnitude, int mantissa_bits, int bias) {
    unsigned best = 0;
    for (unsigned code = 0; code < 0x80; ++code) {
        const double d = std::fabs(fp8_value(code, mantissa_bits, bias) - magnitude);
        const double b = std::fabs(fp8_value(best, mantissa_bits, bias) - magnitude);
        if (d < b || (d == b && code % 2 == 0)) {
            best = code;
        }
    }
    return best;
}

template <typename Check>
void for_stratified_floats(Check&& check) {
    constexpr std::uint32_t kTails[] = {0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    for (std::uint32_t top = 0; top < 0x10000; ++top) {
        for (const std::uint32_t tail : kTails) {
            check(std::bit_cast<float>((top << 16U) | tail));
        }
    }
}

}  // namespace

TEST_CASE("all FP8 codes decode to their closed form") {
    for (unsigned code = 0; code < 256; ++code) {
        const auto c = static_cast<std::uint8_t>(code);
        if ((code & 0x7F) == 0x7F) {
            CHECK(std::isnan(float_of_e4m3(c)));
        } else {
            CHECK(float_of_e4m3(c) == fp8_value(code, 3, 7));
            CHECK(std::signbit(float_of_e4m3(c)) == (code >= 0x80));
        }
        if ((code & 0x7F) == 0x7C) {
            CHECK(std::isinf(float_of_e5m2(c)));
        } else if ((code & 0x7F) > 0x7C) {
            CHECK(std::isnan(float_of_e5m2(c)));
        } else {
            CHECK(float_of_e5m2(c) == fp8_value(code, 2, 15));
        }
    }
    CHECK(float_of_e4m3(0x7E) == 448.0F);
    CHECK(float_of_e5m2(0x7B) == 57344.0F);
}

TEST_CASE("FP8 encoding rounds the exact value to the nearest code, then looks at the range") {
    std::size_t wrong = 0;
    for_stratified_floats([&](float value) {
        const unsigned sign = std::signbit(value) ? 0x80U : 0U;
        unsigned e4m3[2];
        unsigned e5m2[2];
        if (std::isnan(value)) {
            e4m3[0] = e4m3[1] = sign | 0x7FU;
            e5m2[0] = e5m2[1] = sign | 0x7EU;
        } else {
            const double magnitude = std::fabs(static_cast<double>(value));
            const bool over4 = magnitude > 464.0;
            const bool over5 = magnitude >= 61440.0;
            e4m3[0] = sign | (over4 ? 0x7EU : std::min(nearest(magnitude, 3, 7), 0x7EU));
            e4m3[1] = over4 ? sign | 0x7FU : e4m3[0];
            e5m2[0] = sign | (over5 ? 0x7BU : nearest(magnitude, 2, 15));
            e5m2[1] = over5 ? sign | 0x7CU : e5m2[0];
        }
        wrong += e4m3_of(value, Overflow::Saturate) != e4m3[0] ? 1U : 0U;
        wrong += e4m3_of(value, Overflow::NotFinite) != e4m3[1] ? 1U : 0U;
        wrong += e5m2_of(value, Overflow::Saturate) != e5m2[0] ? 1U : 0U;
        wrong += e5m2_of(value, Overflow::NotFinite) != e5m2[1] ? 1U : 0U;
    });
    CHECK(wrong == 0);
}

TEST_CASE("F16 and BF16 go both ways") {
    for (std::uint32_t code = 0; code < 0x10000; ++code) {
        const auto c = static_cast<std::uint16_t>(code);
        const std::uint32_t exponent = (code >> 10U) & 31U;
        const float value = float_of_f16(c);
        if (exponent == 31) {
            CHECK(((code & 0x3FFU) == 0 ? std::isinf(value) : std::isnan(value)));
            continue;
        }
        const double magnitude = exponent == 0 ? std::ldexp(code & 0x3FFU, -24)
                                               : std::ldexp(1024 + (code & 0x3FFU), static_cast<int>(exponent) - 25);
        REQUIRE(std::fabs(static_cast<double>(value)) == magnitude);
        REQUIRE(f16_of(value) == c);
        if (exponent != 30 || (code & 0x3FFU) != 0x3FFU) {
            // Halfway to the next code goes to the even one, and a hair beyond goes up.
            const auto next = static_cast<std::uint16_t>(code + 1);
            const float middle = (value + float_of_f16(next)) / 2;
            REQUIRE(f16_of(middle) == (code % 2 == 0 ? c : next));
            REQUIRE(f16_of(std::nextafterf(middle, value * 4)) == (value == 0.0F ? c : next));
        }
        REQUIRE((std::isnan(float_of_bf16(c)) || bf16_of(float_of_bf16(c)) == c));
    }
    CHECK(f16_of(65519.996F) == 0x7BFF);
    CHECK(f16_of(65520.0F) == 0x7C00);
    CHECK(std::isnan(float_of_f16(f16_of(std::nanf("")))));
}

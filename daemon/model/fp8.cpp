// FP8 by integer arithmetic on the bits of the float: e = max(floor(log2 |x|), 1 - bias), m = RNE(|x| 2^(M - e)),
// code = ((e + bias - 1) << M) + m. A carry out of the mantissa falls through into the exponent by itself.
#include "model/fp8.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace perceptd::model {
namespace {

struct Layout {
    int mantissa_bits;
    int bias;
    std::uint8_t max_code;  // largest finite
    std::uint8_t nan_code;
    std::uint8_t overflow_code;  // what Fp8Overflow::Special gives
};

constexpr Layout layout_of(Fp8Format format) noexcept {
    return format == Fp8Format::E4m3 ? Layout{3, 7, 0x7e, 0x7f, 0x7f} : Layout{2, 15, 0x7b, 0x7e, 0x7c};
}

/// value >> shift, rounded to nearest, ties to even.
constexpr std::uint32_t shifted_rne(std::uint32_t value, int shift) noexcept {
    if (shift > 31) {
        return 0;
    }
    const std::uint32_t floor = value >> shift;
    const std::uint32_t rest = value - (floor << shift);
    const std::uint32_t half = 1U << (shift - 1);
    return floor + ((rest > half || (rest == half && (floor & 1U) != 0)) ? 1U : 0U);
}

}  // namespace

std::uint8_t encode_fp8(float value, Fp8Format format, Fp8Overflow overflow) noexcept {
    constexpr int kFloatMantissaBits = 23;
    constexpr int kFloatBias = 127;
    constexpr std::uint32_t kFloatInfinity = 0x7f800000U;
    const Layout layout = layout_of(format);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24) & 0x80U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > kFloatInfinity) {
        return static_cast<std::uint8_t>(sign | layout.nan_code);
    }
    const std::uint32_t beyond = overflow == Fp8Overflow::Saturate ? layout.max_code : layout.overflow_code;
    if (magnitude == kFloatInfinity) {
        return static_cast<std::uint8_t>(sign | beyond);
    }
    const auto field = static_cast<int>(magnitude >> kFloatMantissaBits);
    const std::uint32_t fraction = magnitude & ((1U << kFloatMantissaBits) - 1);
    const std::uint32_t significand = field == 0 ? fraction : fraction | (1U << kFloatMantissaBits);
    const int exponent = std::max(field, 1) - kFloatBias;
    const int grid = std::max(exponent, 1 - layout.bias);
    const std::uint32_t mantissa =
        shifted_rne(significand, kFloatMantissaBits - layout.mantissa_bits + grid - exponent);
    const std::uint32_t code = (static_cast<std::uint32_t>(grid + layout.bias - 1) << layout.mantissa_bits) + mantissa;
    return static_cast<std::uint8_t>(sign | (code > layout.max_code ? beyond : code));
}

float decode_fp8(std::uint8_t code, Fp8Format format) noexcept {
    const Layout layout = layout_of(format);
    const float sign = (code & 0x80U) != 0 ? -1.0F : 1.0F;
    const int magnitude = code & 0x7f;
    if (magnitude > layout.max_code) {
        const bool is_infinity = format == Fp8Format::E5m2 && magnitude == layout.overflow_code;
        return std::copysign(
            is_infinity ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN(), sign);
    }
    const int field = magnitude >> layout.mantissa_bits;
    const int fraction = magnitude & ((1 << layout.mantissa_bits) - 1);
    const int significand = field == 0 ? fraction : fraction + (1 << layout.mantissa_bits);
    return sign * std::ldexp(static_cast<float>(significand), std::max(field, 1) - layout.bias - layout.mantissa_bits);
}

}  // namespace perceptd::model

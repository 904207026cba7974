// The small number formats: exact conversions of F16, BF16, FP8 (E4M3 "fn", E5M2) to and from float.
// Encoding rounds the exact value to nearest, ties to even, then looks at the range. Pure functions, any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace perceptd::engine {

/// What an FP8 encoder does with a finite value beyond the largest code, and with infinity.
enum class Overflow : std::uint8_t { Saturate, NotFinite };

/// Exact, including subnormals; NaN keeps its sign and becomes quiet.
constexpr float float_of_f16(std::uint16_t code) noexcept {
    const std::uint32_t sign = (code & 0x8000U) << 16U;
    const std::uint32_t exponent = (code >> 10U) & 0x1FU;
    const std::uint32_t mantissa = code & 0x3FFU;
    if (exponent == 0x1F) {
        return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13U) | (mantissa != 0 ? 0x400000U : 0U));
    }
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
    }
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

/// Rounds to nearest even; beyond 65520 infinity; NaN stays NaN.
constexpr std::uint16_t f16_of(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {
        return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13U) & 0x3FFU));
    }
    if (magnitude >= 0x47800000U) {
        return static_cast<std::uint16_t>(sign | 0x7C00U);
    }
    if (magnitude < 0x38800000U) {
        // Adding 0.5 puts the subnormal's last bit at the float's last bit, so the addition itself rounds.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
    }
    const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U));
}

constexpr float float_of_bf16(std::uint16_t code) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16U);
}

/// Rounds to nearest even; NaN stays NaN.
constexpr std::uint16_t bf16_of(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
        return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
    }
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// 0x7F and 0xFF are NaN; there is no infinity.
float float_of_e4m3(std::uint8_t code) noexcept;
float float_of_e5m2(std::uint8_t code) noexcept;
/// NaN keeps its sign. Largest code 448.
std::uint8_t e4m3_of(float value, Overflow overflow) noexcept;
/// NaN keeps its sign and is quiet (0x7E). Largest code 57344.
std::uint8_t e5m2_of(float value, Overflow overflow) noexcept;

}  // namespace perceptd::engine

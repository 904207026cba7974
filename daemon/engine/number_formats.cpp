#include "engine/number_formats.hpp"

namespace perceptd::engine {
namespace {

template <int MantissaBits>
float decode(std::uint8_t code, float bias) noexcept {
    const std::uint32_t sign = (code & 0x80U) << 24U;
    const float magnitude = std::bit_cast<float>((code & 0x7FU) << (23U - MantissaBits)) * bias;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

/// Codes of finite magnitudes are consecutive integers: rounding may carry into the exponent freely.
template <int MantissaBits, int Bias>
std::uint32_t rounded_code(std::uint32_t magnitude_bits) noexcept {
    constexpr std::uint32_t kLeastNormal = static_cast<std::uint32_t>(128 - Bias) << 23U;
    if (magnitude_bits < kLeastNormal) {
        // Adding a power of two whose last bit is the smallest code makes the addition round.
        const auto lift = std::bit_cast<float>(static_cast<std::uint32_t>(128 - Bias + 23 - MantissaBits) << 23U);
        const float sum = std::bit_cast<float>(magnitude_bits) + lift;
        return std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(lift);
    }
    constexpr unsigned kDropped = 23U - MantissaBits;
    const std::uint32_t odd = (magnitude_bits >> kDropped) & 1U;
    const std::uint32_t rounded = magnitude_bits + (1U << (kDropped - 1U)) - 1U + odd;
    return (rounded >> kDropped) - (static_cast<std::uint32_t>(127 - Bias) << MantissaBits);
}

}  // namespace

float float_of_e4m3(std::uint8_t code) noexcept {
    if ((code & 0x7FU) == 0x7FU) {
        return std::bit_cast<float>(((code & 0x80U) << 24U) | 0x7FC00000U);
    }
    return decode<3>(code, 0x1p120F);
}

float float_of_e5m2(std::uint8_t code) noexcept {
    const std::uint32_t magnitude = code & 0x7FU;
    if (magnitude >= 0x7CU) {
        const std::uint32_t rest = magnitude == 0x7CU ? 0U : 0x400000U | ((magnitude & 3U) << 21U);
        return std::bit_cast<float>(((code & 0x80U) << 24U) | 0x7F800000U | rest);
    }
    return decode<2>(code, 0x1p112F);
}

std::uint8_t e4m3_of(float value, Overflow overflow) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24U) & 0x80U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {
        return static_cast<std::uint8_t>(sign | 0x7FU);
    }
    const std::uint32_t code = magnitude == 0x7F800000U ? 0x7FU : rounded_code<3, 7>(magnitude);
    if (code >= 0x7FU) {
        return static_cast<std::uint8_t>(sign | (overflow == Overflow::Saturate ? 0x7EU : 0x7FU));
    }
    return static_cast<std::uint8_t>(sign | code);
}

std::uint8_t e5m2_of(float value, Overflow overflow) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24U) & 0x80U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {
        return static_cast<std::uint8_t>(sign | 0x7EU);
    }
    const std::uint32_t code = magnitude == 0x7F800000U ? 0x7CU : rounded_code<2, 15>(magnitude);
    if (code >= 0x7CU) {
        return static_cast<std::uint8_t>(sign | (overflow == Overflow::Saturate ? 0x7BU : 0x7CU));
    }
    return static_cast<std::uint8_t>(sign | code);
}

}  // namespace perceptd::engine

// The two 8-bit floats of the OCP format: E4M3 ("fn": no infinity) and E5M2. Bit-exact: round to nearest even on the
// exact value, then the range. Owns nothing. Never depends on the rounding mode or on float arithmetic.
#pragma once

#include <cstdint>

namespace perceptd::model {

enum class Fp8Format : std::uint8_t { E4m3, E5m2 };

/// What a value beyond the range becomes.
enum class Fp8Overflow : std::uint8_t {
    Saturate,  ///< +-448 or +-57344, infinities included
    Special,   ///< NaN (E4M3) or infinity (E5M2)
};

/// The code of `value`. NaN becomes sign|0x7f (E4M3) or sign|0x7e (E5M2) in either mode; -0 keeps its sign.
/// Real-time safe.
[[nodiscard]] std::uint8_t encode_fp8(float value, Fp8Format format, Fp8Overflow overflow) noexcept;

/// The exact value of `code`. Real-time safe.
[[nodiscard]] float decode_fp8(std::uint8_t code, Fp8Format format) noexcept;

/// The largest finite value: 448 or 57344.
[[nodiscard]] constexpr float fp8_max(Fp8Format format) noexcept {
    return format == Fp8Format::E4m3 ? 448.0F : 57344.0F;
}

}  // namespace perceptd::model

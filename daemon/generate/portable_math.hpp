// Logarithm and exponential out of IEEE additions, multiplications and divisions alone: the same bits from every
// compiler, C library and instruction set, which no standard library promises. Owns nothing.
#pragma once

namespace perceptd::generate {

/// Natural logarithm of a positive normal number; error below 2 units in the last place. Real-time safe.
[[nodiscard]] double portable_log(double x) noexcept;

/// e to the power of `x` <= 0; error below 2 units in the last place, 0 below -700. Real-time safe.
[[nodiscard]] double portable_exp(double x) noexcept;

}  // namespace perceptd::generate

// Activations for integer kernels: int8 codes per token and per 32 of K, each group with its scale and the sum of its
// codes by halves (for zero points and minima; times -8, what Q4_0 adds as it is). One 40-byte record keeps what a
// kernel needs of a group in one stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/weights.hpp"

namespace perceptd::engine {

/// value[k] ~ scale * codes[place_in_group(k)]; codes in -127..127; scale = amax / 127, 0 for a group of zeros.
struct ActivationGroup {
    std::int8_t codes[kGroupSize];
    float scale;
    std::int16_t minus_8_sums[2];  ///< -8 * sum of the codes of elements 0..15 and of 16..31
};
static_assert(sizeof(ActivationGroup) == 40);

/// Tokens x groups, row-major, borrowed; `row_stride` in groups.
struct ActivationView {
    const ActivationGroup* groups = nullptr;
    std::size_t row_stride = 0;

    [[nodiscard]] const ActivationGroup* row(std::size_t token) const noexcept { return groups + token * row_stride; }
};

/// Tokens x columns of float, row-major, borrowed; `row_stride` in floats.
struct FloatView {
    const float* values = nullptr;
    std::size_t row_stride = 0;

    [[nodiscard]] const float* row(std::size_t token) const noexcept { return values + token * row_stride; }
};

struct MutableFloatView {
    float* values = nullptr;
    std::size_t row_stride = 0;

    [[nodiscard]] float* row(std::size_t token) const noexcept { return values + token * row_stride; }
    [[nodiscard]] operator FloatView() const noexcept { return {values, row_stride}; }
};

}  // namespace perceptd::engine

// Asymmetric 4-bit groups along a row: w ~ s (q - z), q and z in 0..15, s fp16. Groups of 32 or 128; the last may be
// shorter. Owns nothing. Never mixes rows, never reads a scale that was not stored.
//
// A row of K weights in G = ceil(K / group) groups is three planes without padding between them:
//   ceil(K / 2) bytes   q, weight 2i in the low nibble, 2i + 1 in the high one
//   2 G bytes           s, fp16 little endian
//   ceil(G / 2) bytes   z, group 2i in the low nibble, 2i + 1 in the high one
// which is 4 + 20 / group bits per weight: 4.625 (32) or 4.156 (128). Unused nibbles are 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace perceptd::model {

/// Bytes of a row of `columns` weights.
[[nodiscard]] constexpr std::size_t int4_row_bytes(std::size_t columns, std::size_t group) noexcept {
    const std::size_t groups = columns / group + (columns % group != 0 ? 1 : 0);
    return columns / 2 + columns % 2 + 2 * groups + groups / 2 + groups % 2;
}

/// One group as it is stored.
struct Int4Group {
    float scale = 0;  ///< exactly an fp16 value
    std::uint8_t zero = 0;
};

/// The scale and zero that `encode_int4_row` stores for `weights`, and its codes (same length). With lo = min(0, w) and
/// hi = max(0, w) the grid is s = fp16((hi - lo) / 15 * (32 - j) / 32), j = 0..7, times z = floor or ceil of -lo / s
/// (clamped to 0..15); q = clamp(RNE(w / s) + z). The first of the 16 points with the least sum of
/// importance * (w - s (q - z))^2 wins; all arithmetic is in double, in ascending order. An all-zero group has s = 0.
/// `importance` is the mean squared activation per column, or empty for 1. Weights are finite and within +-65504.
Int4Group encode_int4_group(std::span<const float> weights, std::span<const float> importance,
                            std::span<std::uint8_t> codes) noexcept;

/// Encodes a row; `row` has int4_row_bytes(). Same conditions as encode_int4_group().
void encode_int4_row(std::span<const float> weights, std::span<const float> importance, std::size_t group,
                     std::span<std::byte> row) noexcept;

/// The weights s * (q - z) in float; exact inverse of what is stored. `row` has int4_row_bytes().
void decode_int4_row(std::span<const std::byte> row, std::size_t group, std::span<float> weights) noexcept;

/// Scale and zero of group `index`.
[[nodiscard]] Int4Group int4_group_of(std::span<const std::byte> row, std::size_t columns, std::size_t group,
                                      std::size_t index) noexcept;

}  // namespace perceptd::model

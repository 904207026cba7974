// Weights as the kernels read them: 8 output rows side by side ("row block"), 4 codes of each row in one 32-byte
// vector, so that a vector lane is a row and no horizontal sum exists. This file is the layout's definition. Within a
// group of 32, quad j (0..7) of a row is k = 2j, 2j+1, 16+2j, 17+2j: its two int16 halves belong to the two halves of
// the group, so scales per 16 and zero points are applied by one 16-bit operation for both halves. Activation codes
// have the same order. 4-bit codes: byte b of vector j holds quad j (low) and quad j+4 (high nibble).
//
// A row block holds K/32 groups, several groups to a "chunk": first the chunk's scales, then the codes. Chunks are
// multiples of 32 bytes, for Q4_0 and Q8_0 whole cache lines, so that no vector load crosses a line.
// Rows are padded to a multiple of 8 with zero codes and zero scales; K must be a multiple of 32 (256 for Q4_K and
// Q6_K, 128 for Int4G128): a format's own blocks demand that already. Float kinds store 8 rows of one k next to each
// other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perceptd::engine {

/// Part of the name of a cache of packed weights: changes whenever a byte of the layout does.
inline constexpr std::uint32_t kWeightLayoutVersion = 1;
inline constexpr std::size_t kRowsPerBlock = 8;
inline constexpr std::size_t kGroupSize = 32;
inline constexpr std::size_t kWeightAlignmentBytes = 64;

/// Where element k (0..31) of a group lies among its 32 codes: 4 * quad + place in the quad.
constexpr std::size_t place_in_group(std::size_t k) noexcept {
    return k % 16 / 2 * 4 + k / 16 * 2 + k % 2;
}

/// Numbers are part of cache files: append only.
enum class WeightKind : std::uint8_t {
    F32 = 0,
    F16 = 1,
    Bf16 = 2,
    Fp8E4m3 = 3,  ///< times one scale per row (WeightView::row_scales)
    Fp8E5m2 = 4,
    Q4_0 = 5,       ///< s * (q - 8)
    Q4_1 = 6,       ///< s * q + min
    Q4_K = 7,       ///< d * sc * q - dmin * m, sc and m 6 bit per 32
    Q6_K = 8,       ///< d * sc * (q - 32), sc int8 per 16
    Q8_0 = 9,       ///< s * q
    Int4G32 = 10,   ///< s * (q - z), one s (F16) and z (0..15) per 32 of K
    Int4G128 = 11,  ///< the same per 128 of K
};
inline constexpr std::size_t kWeightKindCount = 12;

/// The shape of one chunk of a row block. Float kinds: a group is 32 k with no header.
struct ChunkShape {
    std::size_t groups;        ///< groups of 32 in one chunk
    std::size_t header_bytes;  ///< scales of all groups of the chunk
    std::size_t group_bytes;   ///< codes of one group
    std::size_t k_multiple;    ///< K must be a multiple of this

    [[nodiscard]] constexpr std::size_t bytes() const noexcept { return header_bytes + groups * group_bytes; }
};

constexpr ChunkShape chunk_shape_of(WeightKind kind) noexcept {
    switch (kind) {
        case WeightKind::F32: return {1, 0, 1024, 32};
        case WeightKind::F16:
        case WeightKind::Bf16: return {1, 0, 512, 32};
        case WeightKind::Fp8E4m3:
        case WeightKind::Fp8E5m2: return {1, 0, 256, 32};
        case WeightKind::Q4_0: return {4, 64, 128, 32};       // F16 s[4][8]
        case WeightKind::Q4_1: return {4, 128, 128, 32};      // F16 s[4][8], F16 min[4][8]
        case WeightKind::Q4_K: return {8, 160, 128, 256};     // F16 d[8], F16 dmin[8], u8 sc[8][8], u8 m[8][8]
        case WeightKind::Q6_K: return {8, 160, 192, 256};     // F16 d[8], pad 16, i8 sc[8][2][8]; nibbles 128, 2-bit 64
        case WeightKind::Q8_0: return {4, 64, 256, 32};       // F16 s[4][8]
        case WeightKind::Int4G32: return {4, 96, 128, 32};    // F16 s[4][8], u8 z[4][8]
        case WeightKind::Int4G128: return {4, 32, 128, 128};  // F16 s[8], u8 z[8], pad 8
    }
    return {0, 0, 0, 0};
}

/// Whether the kernels multiply this kind with quantized (int8) activations; otherwise with float ones.
constexpr bool is_integer(WeightKind kind) noexcept {
    return kind >= WeightKind::Q4_0;
}

/// A packed matrix somewhere in memory (borrowed). `data` is aligned to kWeightAlignmentBytes.
struct WeightView {
    WeightKind kind = WeightKind::F32;
    std::size_t rows = 0;     ///< outputs, unpadded
    std::size_t columns = 0;  ///< K
    const std::byte* data = nullptr;
    const float* row_scales = nullptr;  ///< FP8 kinds: multiply the finished sums; padded like the rows

    [[nodiscard]] constexpr std::size_t row_blocks() const noexcept {
        return (rows + kRowsPerBlock - 1) / kRowsPerBlock;
    }
    [[nodiscard]] constexpr std::size_t groups() const noexcept { return columns / kGroupSize; }
    [[nodiscard]] constexpr std::size_t row_block_bytes() const noexcept {
        const ChunkShape shape = chunk_shape_of(kind);
        return (groups() + shape.groups - 1) / shape.groups * shape.bytes();
    }
    [[nodiscard]] constexpr std::size_t bytes() const noexcept { return row_blocks() * row_block_bytes(); }
};

}  // namespace perceptd::engine

// The loops around matmul.inl: ranges of row blocks, tiles of tokens, the store. Internal linkage, like it.
// Tokens outside, row blocks inside: a tile of activations stays in L1 while the range's weights come from L2.
#pragma once

#include "engine/matmul_pair.inl"
#include "engine/matmul_wide.inl"

namespace perceptd::engine {
namespace {

template <WeightKind Kind>
constexpr int kTileOf = !is_integer(Kind)          ? Lanes::kTileFloat
                        : Kind == WeightKind::Q8_0 ? Lanes::kTile8
                                                   : Lanes::kTile4;

struct LinearRange {
    const WeightView& weights;
    const LinearInput& input;
    std::size_t begin;
    std::size_t end;
    float* out;
    std::size_t out_stride;
};

/// The rows of block `b` that exist.
inline void store_rows(const LinearRange& range, std::size_t b, std::size_t token, F sums) {
    float* out = range.out + token * range.out_stride + (b - range.begin) * kRowsPerBlock;
    const std::size_t rows = range.weights.rows - b * kRowsPerBlock;
    if (rows >= kRowsPerBlock) {
        Lanes::store(out, sums);
    } else {
        float lanes[kRowsPerBlock];
        Lanes::store(lanes, sums);
        __builtin_memcpy(out, lanes, rows * sizeof(float));
    }
}

/// Row blocks from `b` on by pairs; returns the first one left.
template <WeightKind Kind, int Columns>
std::size_t tile_by_pairs(const LinearRange& range, std::size_t token, std::size_t b) {
    const std::size_t block_bytes = range.weights.row_block_bytes();
    for (; b + 2 <= range.end; b += 2) {
        alignas(32) float sums[2][Columns][kRowsPerBlock];
        integer_block_pair<Kind, Columns, Lanes>(range.weights.data + b * block_bytes, block_bytes,
                                                 range.weights.groups(), range.input.codes.row(token),
                                                 range.input.codes.row_stride, sums);
        for (std::size_t c = 0; c < static_cast<std::size_t>(Columns); ++c) {
            store_rows(range, b, token + c, Lanes::load(sums[0][c]));
            store_rows(range, b + 1, token + c, Lanes::load(sums[1][c]));
        }
    }
    return b;
}

/// The same with vectors for two blocks.
template <WeightKind Kind, int Columns>
std::size_t tile_by_wide_pairs(const LinearRange& range, std::size_t token, std::size_t b) {
    const std::size_t block_bytes = range.weights.row_block_bytes();
    for (; b + 2 <= range.end; b += 2) {
        F sums[2][Columns];
        integer_block_wide<Kind, Columns, Lanes>(range.weights.data + b * block_bytes, block_bytes,
                                                 range.weights.groups(), range.input.codes.row(token),
                                                 range.input.codes.row_stride, sums);
#pragma GCC unroll 8
        for (std::size_t c = 0; c < static_cast<std::size_t>(Columns); ++c) {
            store_rows(range, b, token + c, sums[0][c]);
            store_rows(range, b + 1, token + c, sums[1][c]);
        }
    }
    return b;
}

template <WeightKind Kind, int Columns>
__attribute__((noinline)) void tile_of_tokens(const LinearRange& range, std::size_t token) {
    const std::size_t block_bytes = range.weights.row_block_bytes();
    std::size_t b = range.begin;
    if constexpr (Lanes::kWidensBlocks && is_integer(Kind) && Kind != WeightKind::Q6_K && Columns > 1) {
        b = tile_by_wide_pairs<Kind, Columns>(range, token, b);
    } else if constexpr (Lanes::kPairsBlocks && has_nibbles(Kind) && Columns > 1) {
        b = tile_by_pairs<Kind, Columns>(range, token, b);
    }
    for (; b < range.end; ++b) {
        const std::byte* block = range.weights.data + b * block_bytes;
        F acc[Columns];
        if constexpr (is_integer(Kind)) {
            integer_block<Kind, Columns>(block, range.weights.groups(), range.input.codes.row(token),
                                         range.input.codes.row_stride, acc);
        } else {
            float_block<Kind, Columns>(block, range.weights.groups(), range.input.floats.row(token),
                                       range.input.floats.row_stride, range.weights.row_scales + b * kRowsPerBlock,
                                       acc);
        }
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            store_rows(range, b, token + static_cast<std::size_t>(c), acc[c]);
        }
    }
}

template <WeightKind Kind, int Columns>
void tile_of_width(const LinearRange& range, std::size_t token, std::size_t width) {
    if (width == static_cast<std::size_t>(Columns)) {
        tile_of_tokens<Kind, Columns>(range, token);
    } else if constexpr (Columns > 1) {
        tile_of_width<Kind, Columns - 1>(range, token, width);
    }
}

template <WeightKind Kind>
void linear_of_kind(const LinearRange& range) {
    constexpr auto kTile = static_cast<std::size_t>(kTileOf<Kind>);
    const std::size_t tokens = range.input.tokens;
    // Equal widths: eight tokens are 4 + 4, not 6 + 2.
    const std::size_t tiles = (tokens + kTile - 1) / kTile;
    for (std::size_t tile = 0; tile < tiles; ++tile) {
        const std::size_t token = tokens * tile / tiles;
        tile_of_width<Kind, kTileOf<Kind>>(range, token, tokens * (tile + 1) / tiles - token);
    }
}

void linear_blocks(const WeightView& weights, const LinearInput& input, std::size_t block_begin, std::size_t block_end,
                   float* out, std::size_t out_stride) noexcept {
    const LinearRange range{weights, input, block_begin, block_end, out, out_stride};
    switch (weights.kind) {
        case WeightKind::F32: return linear_of_kind<WeightKind::F32>(range);
        case WeightKind::F16: return linear_of_kind<WeightKind::F16>(range);
        case WeightKind::Bf16: return linear_of_kind<WeightKind::Bf16>(range);
        case WeightKind::Fp8E4m3: return linear_of_kind<WeightKind::Fp8E4m3>(range);
        case WeightKind::Fp8E5m2: return linear_of_kind<WeightKind::Fp8E5m2>(range);
        case WeightKind::Q4_0: return linear_of_kind<WeightKind::Q4_0>(range);
        case WeightKind::Q4_1: return linear_of_kind<WeightKind::Q4_1>(range);
        case WeightKind::Q4_K: return linear_of_kind<WeightKind::Q4_K>(range);
        case WeightKind::Q6_K: return linear_of_kind<WeightKind::Q6_K>(range);
        case WeightKind::Q8_0: return linear_of_kind<WeightKind::Q8_0>(range);
        case WeightKind::Int4G32: return linear_of_kind<WeightKind::Int4G32>(range);
        case WeightKind::Int4G128: return linear_of_kind<WeightKind::Int4G128>(range);
    }
}

}  // namespace
}  // namespace perceptd::engine

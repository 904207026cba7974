// KV codes and the attention of one piece, written once over `Lanes`; internal linkage, like matmul.inl.
// A tile is 32 positions from a multiple of 32; within it: scores by 8-lane dots, one exp for all, then the values
// ascending. Keys and values are decoded once per tile and used by all queries of the piece.
#pragma once

#include <cstring>
#include <limits>

#include "engine/attention.hpp"
#include "engine/rows.inl"
#include "model/fp8.hpp"

namespace perceptd::engine {
namespace {

bool encode_kv_row(KvFormat format, const float* row, std::size_t dimension, std::byte* out) noexcept {
    using L = Lanes;
    const L::F limit = L::set1(format == KvFormat::F16 ? 65504.0F : std::numeric_limits<float>::max());
    L::F fault = L::zero();
    for (std::size_t i = 0; i < dimension; i += 8) {
        const L::F v = L::load(row + i);
        // Beyond the format's range: infinity times zero makes a NaN of the lane.
        fault = L::fma(L::select_less(limit, L::abs(v), L::set1(std::numeric_limits<float>::infinity()), v), L::zero(),
                       fault);
        switch (format) {
            case KvFormat::F32: L::store(reinterpret_cast<float*>(out) + i, v); break;
            case KvFormat::F16: L::store_f16(out + 2 * i, v); break;
            case KvFormat::Fp8E4m3:
                for (std::size_t j = 0; j < 8; ++j) {
                    out[i + j] = std::byte{model::encode_fp8(row[i + j], model::Fp8Format::E4m3, model::Fp8Overflow::Saturate)};
                }
                break;
            case KvFormat::Q8: break;
        }
    }
    if (format != KvFormat::Q8) {
        return !L::any_nan(fault);
    }
    for (std::size_t g = 0; g < dimension / kGroupSize; ++g) {
        const float* values = row + g * kGroupSize;
        float amax = 0.0F;
        for (std::size_t i = 0; i < kGroupSize; ++i) {
            const float magnitude = values[i] < 0.0F ? -values[i] : values[i];
            amax = magnitude > amax ? magnitude : amax;
        }
        std::byte code[16];
        L::store_f16(code, L::set1(amax / 127.0F));
        std::memcpy(out + dimension + 2 * g, code, 2);
        const float scale = L::first(L::load_f16(code));
        fault = L::fma(L::set1(scale), L::zero(), fault);
        for (std::size_t i = 0; i < kGroupSize; i += 8) {
            const L::F q = scale > 0.0F ? L::div(L::load(values + i), L::set1(scale)) : L::zero();
            L::store_i8(out + g * kGroupSize + i, L::round(L::max(L::min(q, L::set1(127.0F)), L::set1(-127.0F))));
        }
    }
    return !L::any_nan(fault);
}

void decode_kv_row(KvFormat format, const std::byte* row, std::size_t dimension, float* out) noexcept {
    using L = Lanes;
    for (std::size_t i = 0; i < dimension; i += 8) {
        switch (format) {
            case KvFormat::F32: std::memcpy(out + i, row + 4 * i, 32); break;
            case KvFormat::F16: L::store(out + i, L::load_f16(row + 2 * i)); break;
            case KvFormat::Fp8E4m3: L::store(out + i, L::load_fp8<3>(row + i, 0x1p120F)); break;
            case KvFormat::Q8: {
                std::byte scale[16] = {};
                std::memcpy(scale, row + dimension + i / kGroupSize * 2, 2);
                const L::F factor = L::set1(L::first(L::load_f16(scale)));
                L::store(out + i, L::mul(L::to_float(L::load_i8(row + i)), factor));
                break;
            }
        }
    }
}

/// Running maximum and sum of one query's softmax.
struct SoftmaxState {
    float largest;
    float sum;
};

struct Tile {
    std::size_t first;  ///< position of row 0
    float keys[kPagePositions * kMaxHeadDimension];
    float values[kPagePositions * kMaxHeadDimension];
};

template <int Vectors>
inline __attribute__((always_inline)) void add_values(const float* values, std::size_t dimension, const float* weights,
                                                      std::size_t begin, std::size_t end, float factor, float* out) {
    Lanes::F sum[Vectors];
#pragma GCC unroll 8
    for (int i = 0; i < Vectors; ++i) {
        sum[i] = Lanes::mul(Lanes::load(out + 8 * i), Lanes::set1(factor));
    }
    for (std::size_t j = begin; j < end; ++j) {
        const Lanes::F weight = Lanes::set1(weights[j]);
        const float* row = values + j * dimension;
#pragma GCC unroll 8
        for (int i = 0; i < Vectors; ++i) {
            sum[i] = Lanes::fma(weight, Lanes::load(row + 8 * i), sum[i]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < Vectors; ++i) {
        Lanes::store(out + 8 * i, sum[i]);
    }
}

/// One query against rows [begin, end) of the tile; `out` holds the unnormalized sum.
inline void attend_tile(const Tile& tile, std::size_t dimension, std::size_t begin, std::size_t end, const float* query,
                        float score_scale, SoftmaxState& state, float* out) {
    using L = Lanes;
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    alignas(32) float scores[kPagePositions];
    for (std::size_t j = 0; j < kPagePositions; j += 8) {
        if (j + 8 <= begin || j >= end) {
            L::store(scores + j, L::set1(kNever));
            continue;
        }
        const float* keys = tile.keys + j * dimension;
        L::F sums[8];
#pragma GCC unroll 8
        for (std::size_t r = 0; r < 8; ++r) {
            sums[r] = L::zero();
        }
        for (std::size_t i = 0; i < dimension; i += 8) {
            const L::F q = L::load(query + i);
#pragma GCC unroll 8
            for (std::size_t r = 0; r < 8; ++r) {
                sums[r] = L::fma(q, L::load(keys + r * dimension + i), sums[r]);
            }
        }
        L::store(scores + j, L::mul(L::sum8(sums), L::set1(score_scale)));
    }
    float largest = state.largest;
    for (std::size_t j = 0; j < kPagePositions; ++j) {
        scores[j] = j < begin || j >= end ? kNever : scores[j];
        largest = scores[j] > largest ? scores[j] : largest;
    }
    L::F total = L::zero();
    for (std::size_t j = 0; j < kPagePositions; j += 8) {
        const L::F p = exponential_of(L::sub(L::load(scores + j), L::set1(largest)));
        L::store(scores + j, p);
        total = L::add(total, p);
    }
    const float factor = L::first(exponential_of(L::set1(state.largest - largest)));
    const L::F sum = L::fma(L::set1(state.sum), L::set1(factor), L::set1(L::tree_sum(total)));
    state = SoftmaxState{largest, L::first(sum)};
    std::size_t i = 0;
    for (; i + 64 <= dimension; i += 64) {
        add_values<8>(tile.values + i, dimension, scores, begin, end, factor, out + i);
    }
    for (; i < dimension; i += 32) {
        add_values<4>(tile.values + i, dimension, scores, begin, end, factor, out + i);
    }
}

inline void decode_position(const AttentionPiece& piece, std::size_t position, std::size_t slot, Tile& tile) {
    const AttentionTask& task = *piece.task;
    const std::size_t dimension = task.kv.shape.head_dimension;
    const std::size_t row = position - tile.first;
    decode_kv_row(task.kv.shape.format, task.kv.key_row(task.layer, piece.kv_head, slot), dimension,
                  tile.keys + row * dimension);
    decode_kv_row(task.kv.shape.format, task.kv.value_row(task.layer, piece.kv_head, slot), dimension,
                  tile.values + row * dimension);
}

/// All queries of the piece against one tile.
inline void attend_all(const AttentionPiece& piece, Tile& tile, std::size_t shared_end, SoftmaxState* states) {
    const AttentionTask& task = *piece.task;
    const std::size_t dimension = task.kv.shape.head_dimension;
    const std::size_t heads = task.query_heads / task.kv.shape.kv_heads;
    for (std::size_t token = piece.token_begin; token < piece.token_end; ++token) {
        const VisibleRange visible = visible_range_of(task, token);
        const std::size_t begin = visible.begin > tile.first ? visible.begin : tile.first;
        const std::size_t tile_end = tile.first + kPagePositions;
        const std::size_t end = visible.end < tile_end ? visible.end : tile_end;
        if (begin >= end) {
            continue;
        }
        // Beyond the tree's base each query has its own ancestors.
        for (std::size_t p = begin > shared_end ? begin : shared_end; p < end; ++p) {
            decode_position(piece, p, task.tree->slots[token * task.tree->stride + p - task.tree->base], tile);
        }
        for (std::size_t h = 0; h < heads; ++h) {
            const std::size_t column = (piece.kv_head * heads + h) * dimension;
            attend_tile(tile, dimension, begin - tile.first, end - tile.first, task.queries.row(token) + column,
                        task.score_scale, states[(token - piece.token_begin) * heads + h],
                        task.out.row(token) + column);
        }
    }
}

void attend_piece(const AttentionPiece& piece) noexcept {
    const AttentionTask& task = *piece.task;
    const std::size_t dimension = task.kv.shape.head_dimension;
    const std::size_t heads = task.query_heads / task.kv.shape.kv_heads;
    SoftmaxState states[kQueriesPerPiece * kMaxQueryGroup];
    VisibleRange all{std::numeric_limits<std::size_t>::max(), 0};
    for (std::size_t token = piece.token_begin; token < piece.token_end; ++token) {
        const VisibleRange visible = visible_range_of(task, token);
        all.begin = visible.begin < all.begin ? visible.begin : all.begin;
        all.end = visible.end > all.end ? visible.end : all.end;
        std::memset(task.out.row(token) + piece.kv_head * heads * dimension, 0, heads * dimension * sizeof(float));
        for (std::size_t h = 0; h < heads; ++h) {
            states[(token - piece.token_begin) * heads + h] = {-std::numeric_limits<float>::infinity(), 0.0F};
        }
    }
    const std::size_t shared_end = task.tree != nullptr && task.tree->base < all.end ? task.tree->base : all.end;
    Tile tile;
    std::memset(tile.keys, 0, kPagePositions * dimension * sizeof(float));
    for (tile.first = all.begin / kPagePositions * kPagePositions; tile.first < all.end; tile.first += kPagePositions) {
        const std::size_t begin = all.begin > tile.first ? all.begin : tile.first;
        for (std::size_t p = begin; p < tile.first + kPagePositions && p < shared_end; ++p) {
            decode_position(piece, p, p, tile);
        }
        attend_all(piece, tile, shared_end, states);
    }
    for (std::size_t token = piece.token_begin; token < piece.token_end; ++token) {
        for (std::size_t h = 0; h < heads; ++h) {
            float* out = task.out.row(token) + (piece.kv_head * heads + h) * dimension;
            const Lanes::F sum = Lanes::set1(states[(token - piece.token_begin) * heads + h].sum);
            for (std::size_t i = 0; i < dimension; i += 8) {
                Lanes::store(out + i, Lanes::div(Lanes::load(out + i), sum));
            }
        }
    }
}

}  // namespace
}  // namespace perceptd::engine

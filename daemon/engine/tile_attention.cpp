#include "engine/tile_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/blocks.hpp"

namespace perceptd::engine {
namespace {

/// Everything that both forms share: operands in DRAM and buffers in the Tcm.
struct Attention {
    Tcm& tcm;
    const graph::AttentionTileShape& shape;
    const graph::AttentionTiling& tiling;
    float scale;
    const float* queries;
    const std::uint16_t* keys;
    const std::uint16_t* values;
    float* out;
    float* query_tile;
    float* acc;
    std::uint16_t* kv_tile;
    float* tile;

    [[nodiscard]] std::uint64_t query_bytes(std::uint32_t rows) const noexcept {
        return std::uint64_t{rows} * shape.head_dim * sizeof(float);
    }
    [[nodiscard]] std::uint64_t kv_bytes(std::uint32_t positions) const noexcept {
        return std::uint64_t{positions} * shape.head_dim * sizeof(std::uint16_t);
    }
    [[nodiscard]] std::uint64_t row_at(std::uint32_t row) const noexcept { return std::uint64_t{row} * shape.head_dim; }
};

template <typename Body>
void each_tile(std::uint32_t whole, std::uint32_t tile, Body&& body) {
    for (std::uint32_t at = 0; at < whole; at += tile) {
        body(at, std::min(tile, whole - at));
    }
}

float dot_f16(const float* a, const std::uint16_t* b, std::uint32_t count) noexcept {
    float sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        sum = std::fma(a[i], model::decode_f16(b[i]), sum);
    }
    return sum;
}

/// The state of online softmax for a tile of queries, in the Tcm.
struct OnlineRows {
    float* top;
    float* sum;
    float* acc;
};

void fold_tile(const OnlineRows& state, std::uint32_t row, const float* scores, const std::uint16_t* values,
               std::uint32_t positions, std::uint32_t dim) noexcept {
    const float top = std::max(state.top[row], *std::max_element(scores, scores + positions));
    const float decay = std::exp(state.top[row] - top);
    float* const acc = state.acc + std::uint64_t{row} * dim;
    state.sum[row] *= decay;
    std::for_each(acc, acc + dim, [&](float& value) { value *= decay; });
    for (std::uint32_t p = 0; p < positions; ++p) {
        const float share = std::exp(scores[p] - top);
        state.sum[row] += share;
        for (std::uint32_t i = 0; i < dim; ++i) {
            acc[i] = std::fma(share, model::decode_f16(values[std::uint64_t{p} * dim + i]), acc[i]);
        }
    }
    state.top[row] = top;
}

void score_tile(const Attention& a, std::uint32_t rows, std::uint32_t positions) noexcept {
    for (std::uint32_t r = 0; r < rows; ++r) {
        for (std::uint32_t p = 0; p < positions; ++p) {
            a.tile[r * positions + p] =
                dot_f16(a.query_tile + a.row_at(r), a.kv_tile + a.row_at(p), a.shape.head_dim) * a.scale;
        }
    }
}

void run_fused(const Attention& a) noexcept {
    const OnlineRows state{a.tcm.take<float>(a.tiling.query_tile), a.tcm.take<float>(a.tiling.query_tile), a.acc};
    std::uint16_t* const v = a.kv_tile + 2 * a.row_at(a.tiling.position_tile);
    each_tile(a.shape.query_rows, a.tiling.query_tile, [&](std::uint32_t row, std::uint32_t rows) {
        a.tcm.load(a.query_tile, a.queries + a.row_at(row), a.query_bytes(rows));
        std::fill_n(state.top, rows, -std::numeric_limits<float>::infinity());
        std::fill_n(state.sum, rows, 0.0F);
        std::fill_n(a.acc, a.row_at(rows), 0.0F);
        each_tile(a.shape.positions, a.tiling.position_tile, [&](std::uint32_t at, std::uint32_t count) {
            a.tcm.load(a.kv_tile, a.keys + a.row_at(at), a.kv_bytes(count));
            a.tcm.load(v, a.values + a.row_at(at), a.kv_bytes(count));
            score_tile(a, rows, count);
            for (std::uint32_t r = 0; r < rows; ++r) {
                fold_tile(state, r, a.tile + std::uint64_t{r} * count, v, count, a.shape.head_dim);
            }
        });
        for (std::uint32_t r = 0; r < rows; ++r) {
            std::for_each(a.acc + a.row_at(r), a.acc + a.row_at(r + 1), [&](float& value) { value /= state.sum[r]; });
        }
        a.tcm.store(a.out + a.row_at(row), a.acc, a.query_bytes(rows));
    });
}

void write_scores(const Attention& a, float* scores) noexcept {
    const std::uint64_t stride_bytes = a.shape.positions * sizeof(float);
    each_tile(a.shape.query_rows, a.tiling.query_tile, [&](std::uint32_t row, std::uint32_t rows) {
        a.tcm.load(a.query_tile, a.queries + a.row_at(row), a.query_bytes(rows));
        each_tile(a.shape.positions, a.tiling.position_tile, [&](std::uint32_t at, std::uint32_t count) {
            a.tcm.load(a.kv_tile, a.keys + a.row_at(at), a.kv_bytes(count));
            score_tile(a, rows, count);
            a.tcm.store_rows(scores + std::uint64_t{row} * a.shape.positions + at, a.tile, count * sizeof(float), rows,
                             stride_bytes);
        });
    });
}

/// Row by row; its buffer takes the place of the tiles, which are between two uses.
void soften(const Attention& a, float* scores) noexcept {
    a.tcm.clear();
    auto* const row = a.tcm.take<float>(a.shape.positions);
    for (std::uint32_t r = 0; r < a.shape.query_rows; ++r) {
        float* const from = scores + std::uint64_t{r} * a.shape.positions;
        a.tcm.load(row, from, a.shape.positions * sizeof(float));
        const float top = *std::max_element(row, row + a.shape.positions);
        float sum = 0;
        for (std::uint32_t p = 0; p < a.shape.positions; ++p) {
            row[p] = std::exp(row[p] - top);
            sum += row[p];
        }
        std::for_each(row, row + a.shape.positions, [&](float& share) { share /= sum; });
        a.tcm.store(from, row, a.shape.positions * sizeof(float));
    }
}

void sum_values(const Attention& a, const float* shares) noexcept {
    const std::uint32_t dim = a.shape.head_dim;
    each_tile(a.shape.query_rows, a.tiling.query_tile, [&](std::uint32_t row, std::uint32_t rows) {
        std::fill_n(a.acc, a.row_at(rows), 0.0F);
        each_tile(a.shape.positions, a.tiling.position_tile, [&](std::uint32_t at, std::uint32_t count) {
            a.tcm.load(a.kv_tile, a.values + a.row_at(at), a.kv_bytes(count));
            a.tcm.load_rows(a.tile, shares + std::uint64_t{row} * a.shape.positions + at, count * sizeof(float), rows,
                            a.shape.positions * sizeof(float));
            for (std::uint32_t r = 0; r < rows; ++r) {
                float* const sums = a.acc + a.row_at(r);
                for (std::uint32_t p = 0; p < count; ++p) {
                    const float share = a.tile[std::uint64_t{r} * count + p];
                    for (std::uint32_t i = 0; i < dim; ++i) {
                        sums[i] = std::fma(share, model::decode_f16(a.kv_tile[a.row_at(p) + i]), sums[i]);
                    }
                }
            }
        });
        a.tcm.store(a.out + a.row_at(row), a.acc, a.query_bytes(rows));
    });
}

}  // namespace

void run_attention(Tcm& tcm, const graph::AttentionTileShape& shape, const graph::AttentionTiling& tiling, float scale,
                   const float* queries, const std::uint16_t* keys, const std::uint16_t* values, float* scores,
                   float* out) noexcept {
    tcm.clear();
    const std::uint64_t query_elements = std::uint64_t{tiling.query_tile} * shape.head_dim;
    const std::uint64_t kv_elements = std::uint64_t{tiling.position_tile} * shape.head_dim;
    // Fused: keys and values, each twice, so that the next tile arrives during the arithmetic.
    const Attention attention{
        .tcm = tcm,
        .shape = shape,
        .tiling = tiling,
        .scale = scale,
        .queries = queries,
        .keys = keys,
        .values = values,
        .out = out,
        .query_tile = tcm.take<float>(query_elements),
        .acc = tcm.take<float>(query_elements),
        .kv_tile = tcm.take<std::uint16_t>((tiling.fused ? 4 : 2) * kv_elements),
        .tile = tcm.take<float>(std::uint64_t{tiling.query_tile} * tiling.position_tile),
    };
    if (tiling.fused) {
        run_fused(attention);
        return;
    }
    write_scores(attention, scores);
    soften(attention, scores);
    sum_values(attention, scores);
}

}  // namespace perceptd::engine

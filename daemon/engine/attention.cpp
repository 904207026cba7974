#include "engine/attention.hpp"

#include "base/contract.hpp"
#include "engine/operations.hpp"

namespace perceptd::engine {
namespace {

/// Tokens whose K and V are in hand at once in project_qkv().
constexpr std::size_t kTokensPerTile = 16;

/// One head of one projection: bias, head norm and rotation applied, `values` in place.
struct HeadFinish {
    const QkvWeights& weights;
    const KernelTable& kernels;
    const float* bias;
    const float* norm;
    bool rotates;
    std::size_t dimension;

    void operator()(float* values, std::size_t position) const noexcept {
        for (std::size_t i = 0; bias != nullptr && i < dimension; ++i) {
            values[i] += bias[i];
        }
        if (norm != nullptr) {
            kernels.rms_norm(values, norm, weights.norm_epsilon, dimension, values);
        }
        if (rotates && weights.rotary != nullptr) {
            kernels.rotate(values, weights.rotary->cosines(position), weights.rotary->sines(position),
                           weights.rotary->dimension(), weights.order);
        }
    }
};

const float* part(const float* whole, std::size_t offset) noexcept {
    return whole != nullptr ? whole + offset : nullptr;
}

/// Projects one KV head (K or V) and writes it into the cache.
void project_kv_head(const KernelTable& kernels, const WeightView& matrix, const HeadFinish& finish,
                     const LinearInput& input, const TokenPlaces& places, const KvView& kv, std::size_t layer,
                     std::size_t head, bool is_key, FaultFlag& fault) noexcept {
    const std::size_t dimension = kv.shape.head_dimension;
    const std::size_t block = head * dimension / kRowsPerBlock;
    float rows[kTokensPerTile * kMaxHeadDimension];
    for (std::size_t token = 0; token < input.tokens; token += kTokensPerTile) {
        LinearInput tile = input;
        tile.codes.groups = input.codes.groups != nullptr ? input.codes.row(token) : nullptr;
        tile.floats.values = input.floats.values != nullptr ? input.floats.row(token) : nullptr;
        tile.tokens = input.tokens - token < kTokensPerTile ? input.tokens - token : kTokensPerTile;
        kernels.linear(matrix, tile, block, block + dimension / kRowsPerBlock, rows, dimension);
        for (std::size_t i = 0; i < tile.tokens; ++i) {
            float* values = rows + i * dimension;
            finish(values, places.positions[token + i]);
            const std::size_t slot = places.slots[token + i];
            std::byte* target = is_key ? kv.key_row(layer, head, slot) : kv.value_row(layer, head, slot);
            if (!kernels.encode_kv(kv.shape.format, values, dimension, target)) {
                fault.store(true, std::memory_order_relaxed);
            }
        }
    }
}

void count_projection(Worker& worker, const QkvWeights& weights, const LinearInput& input, const KvView& kv) noexcept {
    const std::size_t input_row =
        is_integer(weights.q.kind) ? weights.q.groups() * sizeof(ActivationGroup) : weights.q.columns * sizeof(float);
    worker.traffic.weight_bytes += weights.q.bytes() + weights.k.bytes() + weights.v.bytes();
    worker.traffic.activation_bytes += input.tokens * (input_row + weights.q.rows * sizeof(float));
    worker.traffic.kv_write_bytes += input.tokens * kv.shape.position_bytes() / kv.shape.layers;
    worker.traffic.multiply_count +=
        std::uint64_t{weights.q.rows + weights.k.rows + weights.v.rows} * weights.q.columns * input.tokens;
}

/// Positions that the queries of `piece` see, and the tail slots of a tree, each counted once.
TrafficCounter traffic_of(const AttentionPiece& piece) noexcept {
    const AttentionTask& task = *piece.task;
    const std::size_t dimension = task.kv.shape.head_dimension;
    const std::size_t heads = task.query_heads / task.kv.shape.kv_heads;
    std::size_t first = ~std::size_t{0};
    std::size_t last = 0;
    TrafficCounter counted;
    for (std::size_t token = piece.token_begin; token < piece.token_end; ++token) {
        const VisibleRange visible = visible_range_of(task, token);
        first = visible.begin < first ? visible.begin : first;
        counted.multiply_count += std::uint64_t{visible.end - visible.begin} * heads * dimension * 2;
        std::size_t end = visible.end;
        if (task.tree != nullptr) {
            end = end < task.tree->base ? end : task.tree->base;
            for (std::size_t j = 0; j <= task.tree->depths[token]; ++j) {
                const std::size_t slot_end = task.tree->slots[token * task.tree->stride + j] + std::size_t{1};
                end = slot_end > end ? slot_end : end;
            }
        }
        last = end > last ? end : last;
    }
    const std::size_t tokens = piece.token_end - piece.token_begin;
    counted.kv_read_bytes = (last - first) * 2 * task.kv.shape.row_bytes();
    counted.activation_bytes = tokens * heads * dimension * 2 * sizeof(float);
    return counted;
}

}  // namespace

VisibleRange visible_range_of(const AttentionTask& task, std::size_t token) noexcept {
    if (task.visible_count != 0) {
        return {0, task.visible_count};
    }
    const std::size_t position =
        task.tree != nullptr ? task.tree->base + task.tree->depths[token] : task.first_position + token;
    return {task.window != 0 && position + 1 > task.window ? position + 1 - task.window : 0, position + 1};
}

void project_qkv(Worker& worker, const KernelTable& kernels, const QkvWeights& weights, const LinearInput& input,
                 const TokenPlaces& places, const KvView& kv, std::size_t layer, MutableFloatView queries,
                 FaultFlag& fault) noexcept {
    const std::size_t dimension = kv.shape.head_dimension;
    PERCEPTD_ASSERT(dimension % kGroupSize == 0 && dimension <= kMaxHeadDimension);
    const std::size_t query_heads = weights.q.rows / dimension;
    const std::size_t kv_heads = kv.shape.kv_heads;
    worker.share(query_heads + 2 * kv_heads, [&](std::size_t piece) {
        if (piece == 0) {
            count_projection(worker, weights, input, kv);
        }
        if (piece < query_heads) {
            const std::size_t row = piece * dimension;
            const HeadFinish finish{weights, kernels, part(weights.q_bias, row), weights.q_norm, true, dimension};
            kernels.linear(weights.q, input, row / kRowsPerBlock, (row + dimension) / kRowsPerBlock,
                           queries.values + row, queries.row_stride);
            for (std::size_t token = 0; token < input.tokens; ++token) {
                finish(queries.row(token) + row, places.positions[token]);
            }
            return;
        }
        const std::size_t head = (piece - query_heads) % kv_heads;
        const bool is_key = piece - query_heads < kv_heads;
        const float* bias = part(is_key ? weights.k_bias : weights.v_bias, head * dimension);
        const HeadFinish finish{weights, kernels, bias, is_key ? weights.k_norm : nullptr, is_key, dimension};
        project_kv_head(kernels, is_key ? weights.k : weights.v, finish, input, places, kv, layer, head, is_key, fault);
    });
}

void attention(Worker& worker, const KernelTable& kernels, const AttentionTask& task) noexcept {
    const std::size_t kv_heads = task.kv.shape.kv_heads;
    PERCEPTD_ASSERT(task.query_heads % kv_heads == 0 && task.query_heads / kv_heads <= kMaxQueryGroup);
    PERCEPTD_ASSERT(task.kv.shape.head_dimension % kGroupSize == 0 &&
                    task.kv.shape.head_dimension <= kMaxHeadDimension);
    const std::size_t tiles = (task.tokens + kQueriesPerPiece - 1) / kQueriesPerPiece;
    worker.share(kv_heads * tiles, [&](std::size_t index) {
        AttentionPiece piece;
        piece.task = &task;
        piece.kv_head = index / tiles;
        piece.token_begin = index % tiles * kQueriesPerPiece;
        piece.token_end =
            piece.token_begin + kQueriesPerPiece < task.tokens ? piece.token_begin + kQueriesPerPiece : task.tokens;
        kernels.attend(piece);
        worker.traffic += traffic_of(piece);
    });
}

}  // namespace perceptd::engine

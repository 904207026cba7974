#include "engine/unfused_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/executor.hpp"

namespace perceptd::engine {
namespace {

/// Rows of scores are padded so that vector kernels see whole lanes.
std::size_t row_length(const StepContext& context) noexcept {
    return (context.positions + 7) / 8 * 8;
}

/// `body(token, head, row of scores)` for every token and head.
template <typename Body>
void each_head(const Operand& operand, const StepContext& context, Worker& worker, Body&& body) noexcept {
    const std::size_t heads = context.attention.query_heads;
    auto* const rows = reinterpret_cast<float*>(operand.data);
    worker.share(context.tokens * heads,
                 [&](std::size_t piece) { body(piece / heads, piece % heads, rows + piece * row_length(context)); });
}

std::size_t kv_head_of(const StepContext& context, std::size_t head) noexcept {
    return head / (context.attention.query_heads / context.attention.kv_heads);
}

/// Each half of the cache is read once per pass, whoever reads it.
void count_half(const StepContext& context, Worker& worker) noexcept {
    if (worker.index() == 0) {
        const KvShape& shape = context.pass->kv.shape;
        worker.traffic.kv_read_bytes += context.positions * shape.kv_heads * shape.row_bytes();
    }
}

}  // namespace

void write_kv(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const KvView& kv = context.pass->kv;
    const std::size_t dimension = kv.shape.head_dimension;
    worker.share(context.tokens * kv.shape.kv_heads, [&](std::size_t piece) {
        const std::size_t token = piece / kv.shape.kv_heads;
        const std::size_t head = piece % kv.shape.kv_heads;
        const std::uint32_t slot = context.token_slots[token];
        const bool key_good =
            context.kernels->encode_kv(kv.shape.format, step.inputs[0].floats().row(token) + head * dimension,
                                       dimension, kv.key_row(step.layer, head, slot));
        const bool value_good =
            context.kernels->encode_kv(kv.shape.format, step.inputs[1].floats().row(token) + head * dimension,
                                       dimension, kv.value_row(step.layer, head, slot));
        if (!key_good || !value_good) {
            context.fault->store(true, std::memory_order_relaxed);
        }
        worker.traffic.kv_write_bytes += 2 * kv.shape.row_bytes();
    });
}

void scores(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const KvView& kv = context.pass->kv;
    const std::size_t dimension = kv.shape.head_dimension;
    each_head(step.output, context, worker, [&](std::size_t token, std::size_t head, float* row) {
        alignas(32) float key[kMaxHeadDimension];
        const std::size_t visible = context.token_positions[token] + 1U;
        for (std::size_t at = 0; at < visible; ++at) {
            context.kernels->decode_kv(kv.shape.format, kv.key_row(step.layer, kv_head_of(context, head), at),
                                       dimension, key);
            row[at] = context.kernels->dot(step.inputs[0].floats().row(token) + head * dimension, key, dimension) *
                      context.score_scale;
        }
        std::fill(row + visible, row + row_length(context), -std::numeric_limits<float>::infinity());
    });
    count_half(context, worker);
}

void softmax_scores(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const auto* const in = reinterpret_cast<const float*>(step.inputs[0].data);
    auto* const out = reinterpret_cast<float*>(step.output.data);
    each_head(step.output, context, worker, [&](std::size_t, std::size_t, float* row) {
        if (in != out) {
            std::copy_n(in + (row - out), row_length(context), row);
        }
        context.kernels->softmax(row, row_length(context));
    });
}

void weighted_sum(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const KvView& kv = context.pass->kv;
    const std::size_t dimension = kv.shape.head_dimension;
    each_head(step.inputs[0], context, worker, [&](std::size_t token, std::size_t head, const float* row) {
        alignas(32) float value[kMaxHeadDimension];
        float* const out = step.output.floats().row(token) + head * dimension;
        std::fill_n(out, dimension, 0.0F);
        const std::size_t visible = context.token_positions[token] + 1U;
        for (std::size_t at = 0; at < visible; ++at) {
            context.kernels->decode_kv(kv.shape.format, kv.value_row(step.layer, kv_head_of(context, head), at),
                                       dimension, value);
            for (std::size_t i = 0; i < dimension; ++i) {
                out[i] = std::fma(row[at], value[i], out[i]);
            }
        }
    });
    count_half(context, worker);
}

}  // namespace perceptd::engine

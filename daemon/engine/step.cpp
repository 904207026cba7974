#include "engine/step.hpp"

#include <algorithm>

#include "engine/executor.hpp"
#include "engine/pack.hpp"
#include "engine/unfused_attention.hpp"

namespace perceptd::engine {
namespace {

using graph::Format;
using graph::OpKind;

/// Vectors are read by everybody and counted once.
void count_vector(Worker& worker, std::size_t width) noexcept {
    if (worker.index() == 0) {
        worker.traffic.weight_bytes += width * sizeof(float);
    }
}

void embed(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const Pass& pass = *context.pass;
    const WeightView& table = step.weights[0].matrix;
    const MutableFloatView out = step.output.floats();
    worker.share(context.tokens, [&](std::size_t token) {
        const std::uint32_t id = pass.token_ids[token];
        if (id == kSoftToken) {
            const auto before =
                std::count(pass.token_ids.begin(), pass.token_ids.begin() + static_cast<long>(token), id);
            std::copy_n(pass.embeddings.row(static_cast<std::size_t>(before)), step.output.width, out.row(token));
            return;
        }
        unpack_row(table, id, out.row(token));
        worker.traffic.weight_bytes += table.row_block_bytes() / kRowsPerBlock;
    });
}

void select_rows(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const FloatView from = step.inputs[0].floats();
    const MutableFloatView to = step.output.floats();
    worker.share(context.rows, [&](std::size_t row) {
        std::copy_n(from.row(context.pass->logit_rows[row]), step.output.width, to.row(row));
    });
}

NormWeights norm_of(const Step& step) noexcept {
    return {.weight = step.weights[0].vector, .epsilon = step.epsilon};
}

LinearInput input_of(const Operand& operand, std::size_t rows) noexcept {
    return operand.format == Format::Q8 ? LinearInput{.codes = {operand.groups(), operand.stride}, .tokens = rows}
                                        : LinearInput{.floats = operand.floats(), .tokens = rows};
}

/// The normalized input of a fused step, quantized where its weights want that.
LinearInput normalized(const Step& step, const StepContext& context, Worker& worker, bool quantized) noexcept {
    const Operand& x = step.inputs[0];
    const std::size_t width = x.width;
    const bool each = context.tokens <= kEachWorkerTokens;
    const Placement placement = each ? Placement::EachWorker : Placement::Shared;
    auto* const own = reinterpret_cast<float*>(context.worker_norm + worker.index() * context.worker_norm_bytes);
    LinearInput input{.tokens = context.tokens};
    if (quantized) {
        ActivationGroup* const out = each ? reinterpret_cast<ActivationGroup*>(own + width) : context.shared_groups;
        const std::size_t stride = width / kGroupSize;
        normalize_quantize(worker, *context.kernels, placement, x.floats(), context.tokens, width, norm_of(step),
                           nullptr, own, out, stride, *context.fault);
        input.codes = {out, stride};
    } else {
        const MutableFloatView out{each ? own : context.shared_norm, width};
        normalize(worker, *context.kernels, placement, x.floats(), context.tokens, width, norm_of(step), out);
        input.floats = out;
    }
    if (!each) {
        worker.barrier();
    }
    count_vector(worker, width);
    return input;
}

void run_linear(const Step& step, const StepContext& context, Worker& worker) noexcept {
    LinearEpilogue epilogue;
    if (step.weight_count > 1) {
        epilogue.bias = step.weights[1].vector;
        count_vector(worker, step.weights[0].matrix.rows);
    }
    if (step.kind == OpKind::LinearAdd) {
        epilogue.residual = step.inputs[1].floats();
    }
    linear(worker, *context.kernels, step.weights[0].matrix, input_of(step.inputs[0], step.row_count(context)),
           epilogue, step.output.floats());
}

void run_qkv(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const LinearInput input = normalized(step, context, worker, is_integer(step.weights[1].matrix.kind));
    QkvWeights weights{.q = step.weights[1].matrix,
                       .k = step.weights[2].matrix,
                       .v = step.weights[3].matrix,
                       .rotary = context.rotary,
                       .order = context.order};
    if (step.weight_count > 4) {
        weights.q_bias = step.weights[4].vector;
        weights.k_bias = step.weights[5].vector;
        weights.v_bias = step.weights[6].vector;
        count_vector(worker, weights.q.rows + weights.k.rows + weights.v.rows);
    }
    project_qkv(worker, *context.kernels, weights, input, {context.token_positions, context.token_slots},
                context.pass->kv, step.layer, step.output.floats(), *context.fault);
}

void run_gate_up(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const WeightView& gate = step.weights[1].matrix;
    const WeightView& up = step.weights[2].matrix;
    const LinearInput input = normalized(step, context, worker, is_integer(gate.kind));
    if (step.output.format == Format::Q8) {
        gated_linear_quantize(worker, *context.kernels, gate, up, input, nullptr, step.output.groups(),
                              step.output.stride, *context.fault);
    } else {
        gated_linear(worker, *context.kernels, gate, up, input, step.output.floats());
    }
}

void quantize_rows(const Operand& from, const Operand& to, std::size_t rows, const StepContext& context,
                   Worker& worker) noexcept {
    quantize(worker, *context.kernels, Placement::Shared, from.floats(), rows, from.width, nullptr, to.groups(),
             to.stride, *context.fault);
}

void run_attention(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const Pass& pass = *context.pass;
    const bool quantized = step.output.format == Format::Q8;
    AttentionTask task{.queries = step.inputs[0].floats(),
                       .out = quantized ? MutableFloatView{context.heads, step.output.width} : step.output.floats(),
                       .tokens = context.tokens,
                       .query_heads = context.attention.query_heads,
                       .layer = step.layer,
                       .first_position = pass.first_position,
                       .score_scale = context.score_scale,
                       .kv = pass.kv,
                       .tree = pass.tree};
    attention(worker, *context.kernels, task);
    if (quantized) {
        worker.barrier();
        const Operand heads{.data = reinterpret_cast<std::byte*>(context.heads),
                            .width = step.output.width,
                            .stride = step.output.width};
        quantize_rows(heads, step.output, context.tokens, context, worker);
    }
}

/// Element-wise operations go row by row.
template <typename Body>
void each_row(const Step& step, const StepContext& context, Worker& worker, Body&& body) noexcept {
    worker.share(step.row_count(context), [&](std::size_t row) { body(row, step.output.floats().row(row)); });
}

void run_rope(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const std::size_t dimension = context.attention.head_dim;
    each_row(step, context, worker, [&](std::size_t row, float* out) {
        const float* const in = step.inputs[0].floats().row(row);
        if (out != in) {
            std::copy_n(in, step.output.width, out);
        }
        const std::uint32_t position = context.token_positions[row];
        for (std::size_t at = 0; at < step.output.width; at += dimension) {
            context.kernels->rotate(out + at, context.rotary->cosines(position), context.rotary->sines(position),
                                    context.rotary->dimension(), context.order);
        }
    });
}

void run_norm_quantize(const Step& step, const StepContext& context, Worker& worker) noexcept {
    auto* const scratch = reinterpret_cast<float*>(context.worker_norm + worker.index() * context.worker_norm_bytes);
    normalize_quantize(worker, *context.kernels, Placement::Shared, step.inputs[0].floats(), step.row_count(context),
                       step.output.width, norm_of(step), nullptr, scratch, step.output.groups(), step.output.stride,
                       *context.fault);
    count_vector(worker, step.output.width);
}

}  // namespace

void run_step(const Step& step, const StepContext& context, Worker& worker) noexcept {
    const KernelTable& kernels = *context.kernels;
    switch (step.kind) {
        case OpKind::Embed: embed(step, context, worker); break;
        case OpKind::SelectRows: select_rows(step, context, worker); break;
        case OpKind::RmsNorm:
            normalize(worker, kernels, Placement::Shared, step.inputs[0].floats(), step.row_count(context),
                      step.output.width, norm_of(step), step.output.floats());
            count_vector(worker, step.output.width);
            break;
        case OpKind::Quantize:
            quantize_rows(step.inputs[0], step.output, step.row_count(context), context, worker);
            break;
        case OpKind::Linear:
        case OpKind::LinearAdd: run_linear(step, context, worker); break;
        case OpKind::Rope: run_rope(step, context, worker); break;
        case OpKind::KvWrite: write_kv(step, context, worker); break;
        case OpKind::Scores: scores(step, context, worker); break;
        case OpKind::Softmax: softmax_scores(step, context, worker); break;
        case OpKind::WeightedSum: weighted_sum(step, context, worker); break;
        case OpKind::SwiGlu:
            each_row(step, context, worker, [&](std::size_t row, float* out) {
                kernels.silu_multiply(step.inputs[0].floats().row(row), step.inputs[1].floats().row(row),
                                      step.output.width, out);
            });
            break;
        case OpKind::Add:
            each_row(step, context, worker, [&](std::size_t row, float* out) {
                kernels.add(step.inputs[0].floats().row(row), step.inputs[1].floats().row(row), step.output.width, out);
            });
            break;
        case OpKind::NormQuantize: run_norm_quantize(step, context, worker); break;
        case OpKind::QkvRope: run_qkv(step, context, worker); break;
        case OpKind::Attention: run_attention(step, context, worker); break;
        case OpKind::GateUp: run_gate_up(step, context, worker); break;
    }
}

}  // namespace perceptd::engine

// One node of a graph, compiled: where its operands lie and what it calls. Every worker of a team runs all steps.
// Owns nothing. Never has a barrier at its end; the executor says where one is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/attention.hpp"
#include "engine/kernels.hpp"
#include "engine/kv_pages.hpp"
#include "engine/operations.hpp"
#include "engine/rotary.hpp"
#include "graph/ir.hpp"

namespace perceptd::engine {

struct Pass;

/// A value's place in the workspace. `stride`: floats or groups from row to row.
struct Operand {
    std::byte* data = nullptr;
    std::uint32_t width = 0;
    std::size_t stride = 0;
    graph::Format format = graph::Format::F32;

    [[nodiscard]] MutableFloatView floats() const noexcept { return {reinterpret_cast<float*>(data), stride}; }
    [[nodiscard]] ActivationGroup* groups() const noexcept { return reinterpret_cast<ActivationGroup*>(data); }
};

/// A weight of a step: a packed matrix or a vector.
struct StepWeight {
    WeightView matrix;
    const float* vector = nullptr;
};

/// What all steps of a pass share.
struct StepContext {
    const KernelTable* kernels = nullptr;
    const RotaryTable* rotary = nullptr;
    RotaryOrder order = RotaryOrder::Norm;
    graph::AttentionShape attention;
    float score_scale = 1;
    // Norm results inside fused steps: one set of rows for all, or one small set per worker.
    float* shared_norm = nullptr;
    std::byte* worker_norm = nullptr;  ///< worker_norm_bytes for each worker: floats, then rows for kEachWorkerTokens
    std::size_t worker_norm_bytes = 0;
    ActivationGroup* shared_groups = nullptr;
    float* heads = nullptr;  ///< attention's result before it is quantized
    // Of this pass.
    const Pass* pass = nullptr;
    std::size_t tokens = 0;
    std::size_t rows = 0;       ///< wanted rows of logits
    std::size_t positions = 0;  ///< in the cache after the pass
    const std::uint32_t* token_positions = nullptr;
    const std::uint32_t* token_slots = nullptr;
    FaultFlag* fault = nullptr;
};

/// Up to so many tokens every worker normalizes for itself: cheaper than a barrier.
inline constexpr std::size_t kEachWorkerTokens = 8;

struct Step {
    graph::OpKind kind = graph::OpKind::Embed;
    std::uint32_t layer = 0;
    bool selected_rows = false;  ///< works on the wanted rows, not on all tokens
    bool barrier_before = false;
    float epsilon = 0;
    std::array<Operand, 2> inputs;
    Operand output;
    std::array<StepWeight, 7> weights;
    std::size_t weight_count = 0;

    [[nodiscard]] std::size_t row_count(const StepContext& context) const noexcept {
        return selected_rows ? context.rows : context.tokens;
    }
};

/// Runs `step`; called by every worker. Real-time.
void run_step(const Step& step, const StepContext& context, Worker& worker) noexcept;

}  // namespace perceptd::engine

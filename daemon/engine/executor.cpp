#include "engine/executor.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::engine {
namespace {

using graph::Format;
using graph::OpKind;

constexpr std::size_t kAlignmentBytes = 64;

std::size_t aligned(std::size_t bytes) noexcept {
    return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

bool is_fused_norm(OpKind kind) noexcept {
    return kind == OpKind::QkvRope || kind == OpKind::GateUp;
}
bool writes_cache(OpKind kind) noexcept {
    return kind == OpKind::KvWrite || kind == OpKind::QkvRope;
}
bool reads_cache(OpKind kind) noexcept {
    return kind == OpKind::Attention || kind == OpKind::Scores || kind == OpKind::WeightedSum;
}

/// Bytes [begin, end) of the workspace, or a resource beside it.
struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    [[nodiscard]] bool meets(const Range& other) const noexcept { return begin < other.end && other.begin < end; }
};

constexpr Range kCacheRange{~0ULL - 3, ~0ULL - 2};
constexpr Range kNormRange{~0ULL - 2, ~0ULL - 1};
constexpr Range kHeadsRange{~0ULL - 1, ~0ULL};

struct Access {
    std::vector<Range> reads;
    std::vector<Range> writes;

    [[nodiscard]] bool conflicts(const Access& later) const {
        const auto meet = [](const std::vector<Range>& a, const std::vector<Range>& b) {
            return std::any_of(a.begin(), a.end(), [&](const Range& range) {
                return std::any_of(b.begin(), b.end(), [&](const Range& other) { return range.meets(other); });
            });
        };
        return meet(writes, later.reads) || meet(writes, later.writes) || meet(reads, later.writes);
    }
};

Access access_of(const graph::Node& node, const graph::MemoryPlan& plan) {
    Access access;
    const auto range = [&](graph::ValueId value) {
        const graph::Placement& place = plan.placements[value];
        return Range{place.offset_bytes, place.offset_bytes + place.size_bytes};
    };
    for (const graph::ValueId input : node.inputs) {
        access.reads.push_back(range(input));
    }
    for (const graph::ValueId output : node.outputs) {
        access.writes.push_back(range(output));
    }
    if (writes_cache(node.kind)) {
        access.writes.push_back(kCacheRange);
    }
    if (reads_cache(node.kind)) {
        access.reads.push_back(kCacheRange);
    }
    if (is_fused_norm(node.kind) || node.kind == OpKind::NormQuantize) {
        access.writes.push_back(kNormRange);
    }
    if (node.kind == OpKind::Attention) {
        access.writes.push_back(kHeadsRange);
    }
    return access;
}

}  // namespace

Executor::Executor(const graph::Graph& graph, const model::DecoderConfig& config, const PackedDecoder& weights,
                   WorkerTeam& team, const ExecutorOptions& options)
    : graph_(graph), team_(team), options_(options) {
    const graph::AttentionShape& attention = graph_.attention;
    if (options.kv.layers != graph_.layer_count || options.kv.kv_heads != attention.kv_heads ||
        options.kv.head_dimension != attention.head_dim) {
        throw Error(ErrorCode::InvalidArgument, "executor: the cache has another shape than the model");
    }
    if (attention.head_dim % 32 != 0 || attention.head_dim > kMaxHeadDimension || graph_.hidden_width % 32 != 0 ||
        graph_.ffn_width % 32 != 0) {
        throw Error(ErrorCode::Unsupported,
                    "executor: head dimension (at most 256), hidden and feed-forward width must be multiples of 32");
    }
    options_.limits.positions_max = (std::max(options_.limits.positions_max, 1U) + 7) / 8 * 8;
    plan_ = graph::plan_memory(graph_, options_.limits);
    rotary_ = std::make_unique<RotaryTable>(
        config.rope.dimension_count, options_.positions_max, config.rope.theta, config.rope.frequency_factors,
        config.rope.scaling == model::RopeScaling::Linear ? 1.0 / config.rope.factor : 1.0);
    context_.order = config.rope.pairs == model::RopePairs::Neighbours ? RotaryOrder::Norm : RotaryOrder::Neox;
    context_.kernels = &kernels_of(chosen_instruction_set());
    context_.rotary = rotary_.get();
    context_.attention = attention;
    context_.score_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
    context_.fault = &fault_;
    positions_.resize(options_.limits.tokens_max);
    slots_.resize(options_.limits.tokens_max);
    lay_out();
    compile(weights);
    next_step_ = steps_.size();
    place_barriers();
}

Executor::~Executor() = default;

void Executor::lay_out() {
    const std::size_t hidden = graph_.hidden_width;
    const std::size_t tokens = options_.limits.tokens_max;
    const std::size_t float_row_bytes = hidden * sizeof(float);
    const std::size_t group_row_bytes = graph::row_bytes(Format::Q8, graph_.hidden_width);
    context_.worker_norm_bytes =
        aligned(float_row_bytes + kEachWorkerTokens * std::max(float_row_bytes, group_row_bytes));
    std::size_t size_bytes = aligned(plan_.workspace_bytes);
    const auto take = [&](std::size_t bytes) {
        const std::size_t at = size_bytes;
        size_bytes += aligned(bytes);
        return at;
    };
    const std::size_t shared_norm = take(tokens * float_row_bytes);
    const std::size_t shared_groups = take(tokens * group_row_bytes);
    const std::size_t heads = take(tokens * graph_.attention.query_width() * sizeof(float));
    const std::size_t worker_norm = take(context_.worker_norm_bytes * team_.worker_count());
    workspace_ = HugeBuffer(size_bytes);
    workspace_.prefault();
    context_.shared_norm = reinterpret_cast<float*>(workspace_.data() + shared_norm);
    context_.shared_groups = reinterpret_cast<ActivationGroup*>(workspace_.data() + shared_groups);
    context_.heads = reinterpret_cast<float*>(workspace_.data() + heads);
    context_.worker_norm = workspace_.data() + worker_norm;
}

void Executor::compile(const PackedDecoder& weights) {
    const auto operand = [&](graph::ValueId id) {
        const graph::Value& value = graph_.values[id];
        return Operand{.data = workspace_.data() + plan_.placements[id].offset_bytes,
                       .width = value.width,
                       .stride = value.format == Format::Q8 ? value.width / kGroupSize : value.width,
                       .format = value.format};
    };
    for (const graph::Node& node : graph_.nodes) {
        Step step{.kind = node.kind, .layer = node.layer, .epsilon = node.epsilon};
        PERCEPTD_ASSERT(node.weights.size() <= step.weights.size() && node.inputs.size() <= step.inputs.size());
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            step.inputs[i] = operand(node.inputs[i]);
        }
        if (!node.outputs.empty()) {
            step.output = operand(node.outputs[0]);
            step.selected_rows = graph_.values[node.outputs[0]].rows == graph::Rows::Selected;
        }
        for (const graph::WeightId id : node.weights) {
            const graph::Weight& wanted = graph_.weights[id];
            const PackedWeight* const weight = weights.find(wanted.name);
            if (weight == nullptr || weight->matrix.rows != wanted.rows || weight->matrix.columns != wanted.cols) {
                throw Error(ErrorCode::InvalidArgument,
                            "executor: weight '" + wanted.name + "' is missing or of another shape");
            }
            step.weights[step.weight_count++] = {weight->matrix, weight->vector};
        }
        steps_.push_back(step);
    }
}

void Executor::place_barriers() {
    // A phase is what runs between two barriers. A step may join it if it touches nothing that the phase writes.
    constexpr std::size_t kStepsPerPhase = WorkerTeam::kLoopsPerPhase / 4;
    std::vector<Access> phase;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const Access access = access_of(graph_.nodes[i], plan_);
        const bool conflict =
            std::any_of(phase.begin(), phase.end(), [&](const Access& earlier) { return earlier.conflicts(access); });
        if (i > 0 && (conflict || phase.size() >= kStepsPerPhase)) {
            steps_[i].barrier_before = true;
            phase.clear();
        }
        phase.push_back(access);
    }
}

bool Executor::accepts(const Pass& pass) const noexcept {
    const std::size_t tokens = pass.token_ids.size();
    if (tokens == 0 || tokens > options_.limits.tokens_max || pass.logit_rows.size() > options_.limits.logit_rows_max) {
        return false;
    }
    const KvShape& shape = pass.kv.shape;
    if (shape.layers != options_.kv.layers || shape.kv_heads != options_.kv.kv_heads ||
        shape.head_dimension != options_.kv.head_dimension || shape.format != options_.kv.format) {
        return false;
    }
    const std::size_t end = std::size_t{pass.first_position} + tokens;
    const bool unfused =
        std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.kind == OpKind::Scores; });
    if (end > pass.kv.capacity() || end > options_.positions_max ||
        (unfused && (pass.tree != nullptr || end > options_.limits.positions_max))) {
        return false;
    }
    if (pass.tree != nullptr) {
        if (pass.tree_slots == nullptr || pass.tree->base != pass.first_position) {
            return false;
        }
        for (std::size_t i = 0; i < tokens; ++i) {
            if (pass.tree_slots[i] >= pass.kv.capacity() || pass.tree->depths[i] >= tokens) {
                return false;
            }
        }
    }
    return std::all_of(pass.token_ids.begin(), pass.token_ids.end(),
                       [&](std::uint32_t id) {
                           return id < graph_.vocabulary_size ||
                                  (id == kSoftToken && pass.embeddings.values != nullptr);
                       }) &&
           std::all_of(pass.logit_rows.begin(), pass.logit_rows.end(), [&](std::uint32_t row) { return row < tokens; });
}

Status Executor::begin(const Pass& pass) noexcept {
    if (!accepts(pass)) {
        return Status::Invalid;
    }
    for (std::size_t i = 0; i < pass.token_ids.size(); ++i) {
        const auto offset = pass.tree != nullptr ? pass.tree->depths[i] : static_cast<std::uint32_t>(i);
        positions_[i] = pass.first_position + offset;
        slots_[i] = pass.tree != nullptr ? pass.tree_slots[i] : positions_[i];
    }
    fault_.store(false, std::memory_order_relaxed);
    pass_ = pass;
    context_.pass = &pass_;
    context_.tokens = pass.token_ids.size();
    context_.rows = pass.logit_rows.size();
    context_.positions = pass.first_position + pass.token_ids.size();
    context_.token_positions = positions_.data();
    context_.token_slots = slots_.data();
    traffic_ = {};
    next_step_ = 0;
    return Status::Ok;
}

Status Executor::run(const Pass& pass) noexcept {
    const Status begun = begin(pass);
    return begun == Status::Ok ? run_to(steps_.size()) : begun;
}

Status Executor::advance() noexcept {
    std::size_t end_step = next_step_;
    while (end_step < steps_.size() && steps_[end_step].layer == steps_[next_step_].layer) {
        ++end_step;
    }
    return end_step == next_step_ ? Status::Ended : run_to(end_step);
}

Status Executor::run_to(std::size_t end_step) noexcept {
    const std::size_t begin_step = next_step_;
    auto program = [this, begin_step, end_step](Worker& worker) noexcept {
        for (std::size_t i = begin_step; i < end_step; ++i) {
            if (steps_[i].barrier_before) {
                worker.barrier();
                if (worker.cancelled()) {
                    return;
                }
            }
            run_step(steps_[i], context_, worker);
        }
    };
    const bool complete = team_.run(program);
    const TrafficCounter counted = team_.take_traffic();
    traffic_.weight_bytes += counted.weight_bytes;
    traffic_.kv_read_bytes += counted.kv_read_bytes;
    traffic_.kv_write_bytes += counted.kv_write_bytes;
    next_step_ = complete ? end_step : steps_.size();
    if (!complete) {
        return Status::Ended;
    }
    if (next_step_ < steps_.size()) {
        return Status::Again;
    }
    return fault_.load(std::memory_order_relaxed) ? Status::NotFinite : Status::Ok;
}

FloatView Executor::logits() const noexcept {
    return {reinterpret_cast<const float*>(workspace_.data() + plan_.placements[graph_.logits].offset_bytes),
            graph_.vocabulary_size};
}

}  // namespace perceptd::engine

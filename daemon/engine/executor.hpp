// Runs a planned graph on the CPU: one pass over some tokens of one sequence, from ids or embeddings to logits.
// Owns the workspace, laid out once by the graph's memory plan. Borrows weights, cache pages and the worker team.
// Never allocates, locks or throws while it runs, and never gives other bits for another batch width or thread count.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "engine/attention.hpp"
#include "engine/huge_buffer.hpp"
#include "engine/kernels.hpp"
#include "engine/kv_pages.hpp"
#include "engine/operations.hpp"
#include "engine/packed_decoder.hpp"
#include "engine/rotary.hpp"
#include "engine/step.hpp"
#include "graph/memory_plan.hpp"
#include "graph/traffic.hpp"

namespace perceptd::engine {

/// Stands for a token whose row is an embedding (vision, audio, motion).
inline constexpr std::uint32_t kSoftToken = 0xFFFFFFFF;

/// One pass. All spans are borrowed for the call.
struct Pass {
    std::span<const std::uint32_t> token_ids;   ///< ids below the vocabulary size, or kSoftToken
    FloatView embeddings;                       ///< one row of hidden_width floats per soft token, in order
    std::uint32_t first_position = 0;           ///< position of token 0; the cache holds all before it
    std::span<const std::uint32_t> logit_rows;  ///< token indices whose logits are wanted, ascending
    KvView kv;
    const TreePaths* tree = nullptr;            ///< a tree of drafts instead of a chain; base == first_position
    const std::uint32_t* tree_slots = nullptr;  ///< per token, with a tree: where its key and value go
};

struct ExecutorOptions {
    graph::PassLimits limits;
    KvShape kv;
    std::uint32_t positions_max = 2048;  ///< rotations are computed for so many
};

/// Thread-bound: run() and what follows it on one thread at a time.
class Executor {
public:
    /// Throws Error(InvalidArgument) when graph, weights and cache shape do not fit each other.
    Executor(const graph::Graph& graph, const model::DecoderConfig& config, const PackedDecoder& weights,
             WorkerTeam& team, const ExecutorOptions& options);
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    /// Real-time: no allocation, no lock. Invalid: too many tokens or rows, an id beyond the vocabulary, a position
    /// beyond the cache or `positions_max`, a cache of another shape; nothing was run. NotFinite: a weight or an
    /// activation was no number, the logits are void. Ended: the team was cancelled.
    [[nodiscard]] Status run(const Pass& pass) noexcept;

    /// run() in parts, for whoever must let others have the processor in between: begin() checks, each advance() then
    /// runs one layer. Again: there is more; otherwise what run() says. What `pass` refers to stays until then, and
    /// nobody else begins a pass. The parts give the bits of the whole.
    [[nodiscard]] Status begin(const Pass& pass) noexcept;
    [[nodiscard]] Status advance() noexcept;

    /// Logits of the last good run, one row of vocabulary_size per wanted row.
    [[nodiscard]] FloatView logits() const noexcept;
    /// What the last run moved, counted while it ran; equals graph::predict() of the same pass.
    [[nodiscard]] const graph::Traffic& traffic() const noexcept { return traffic_; }
    [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_.size_bytes(); }
    [[nodiscard]] const graph::Graph& graph() const noexcept { return graph_; }

private:
    [[nodiscard]] bool accepts(const Pass& pass) const noexcept;
    [[nodiscard]] Status run_to(std::size_t end_step) noexcept;
    void compile(const PackedDecoder& weights);
    void lay_out();
    void place_barriers();

    graph::Graph graph_;
    WorkerTeam& team_;
    ExecutorOptions options_;
    graph::MemoryPlan plan_;
    std::unique_ptr<RotaryTable> rotary_;
    HugeBuffer workspace_;
    StepContext context_;
    std::vector<Step> steps_;
    std::vector<std::uint32_t> positions_;
    std::vector<std::uint32_t> slots_;
    FaultFlag fault_{false};
    Pass pass_;                  // of begin(), or of run()
    std::size_t next_step_ = 0;  // the end: no pass is open
    graph::Traffic traffic_;
};

}  // namespace perceptd::engine

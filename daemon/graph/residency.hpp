// Chooses which weights stay in memory near the processor (TCM, a locked cache) between passes.
// Owns nothing. Never promises more than the budget holds: what is pinned is a planned fraction, and the report says
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ir.hpp"

namespace perceptd::graph {

/// A model that takes part. A draft runs several passes while its target runs one, so a pinned byte of it saves more.
struct ResidencyCandidate {
    const Graph* graph = nullptr;
    double passes_per_cycle = 1;
};

struct ResidencyPlan {
    std::vector<std::vector<bool>> pinned;    ///< by candidate, by WeightId
    std::vector<std::uint64_t> pinned_bytes;  ///< by candidate
    std::vector<std::uint64_t> weight_bytes;  ///< by candidate: all that a pass reads
    std::uint64_t budget_bytes = 0;
    double saved_bytes_per_cycle = 0;

    /// r of algorithms.md section 9 for one candidate: the share of its weight traffic that the plan removes.
    [[nodiscard]] double fraction(std::size_t candidate) const noexcept;
};

/// Most bytes saved per pinned byte first (passes per cycle); within a model attention projections, then what is left,
/// in execution order; a weight that no longer fits is passed over. Gathered tables are never pinned.
[[nodiscard]] ResidencyPlan plan_residency(const std::vector<ResidencyCandidate>& candidates,
                                           std::uint64_t budget_bytes);

/// A few lines for people.
[[nodiscard]] std::string to_text(const ResidencyPlan& plan);

}  // namespace perceptd::graph

// Gives every value of a graph a fixed place in one workspace, so that a run allocates nothing.
// Owns nothing. Never lets two values that are needed at the same time overlap.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir.hpp"

namespace perceptd::graph {

/// The largest pass that the workspace must hold.
struct PassLimits {
    std::uint32_t tokens_max = 1;
    std::uint32_t logit_rows_max = 1;
    std::uint32_t positions_max = 1;  ///< only unfused attention needs room for it
};

struct Placement {
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;  ///< 0: nothing reads or writes the value
};

struct MemoryPlan {
    std::vector<Placement> placements;  ///< by ValueId
    std::uint64_t workspace_bytes = 0;
    std::uint64_t largest_live_bytes = 0;  ///< no plan can be smaller
};

inline constexpr std::uint64_t kPlacementAlignmentBytes = 64;

/// Largest first into the lowest gap that is free over the value's life. An Add, LinearAdd or Rope whose first
/// (LinearAdd: second) input dies with it writes in place. Throws Error(InvalidArgument) when a limit is zero or a size
/// overflows.
[[nodiscard]] MemoryPlan plan_memory(const Graph& graph, const PassLimits& limits);

}  // namespace perceptd::graph

// Rewrites a graph so that one operation does what several did: fewer passes over memory, fewer barriers.
// Owns nothing. Never changes what is computed: a fused graph gives the bits of the unfused one, but for attention,
// whose online softmax sums in another order (bound: 1e-3 relative; algorithms.md section 6).
#pragma once

#include "graph/ir.hpp"

namespace perceptd::graph {

/// Which rewrites are done; each can be switched off alone.
struct FusionOptions {
    bool query_key_value = true;  ///< RmsNorm + Quantize + 3 Linear + 2 Rope + KvWrite -> QkvRope
    bool attention = true;        ///< Scores + Softmax + WeightedSum + Quantize -> Attention
    bool feed_forward = true;     ///< RmsNorm + Quantize + 2 Linear + SwiGlu + Quantize -> GateUp
    bool residual = true;         ///< Linear + Add -> LinearAdd
    bool norm = true;             ///< RmsNorm + Quantize -> NormQuantize, where nothing above took them
};

/// Operations whose intermediate values are read elsewhere, or whose weights want different forms of input, stay as
/// they are. Throws what check() throws.
[[nodiscard]] Graph fuse(Graph graph, const FusionOptions& options = {});

}  // namespace perceptd::graph

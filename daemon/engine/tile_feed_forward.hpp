// Runs a feed-forward block tile by tile in a Tcm, as a plan of graph/tile_plan says: the proof that
// planned bytes are moved bytes, and the model that a device with a TCM is compared with.
// Owns nothing. Never fast: it is scalar, and its bits are those of the engine's kernels.
#pragma once

#include <cstdint>

#include "engine/activations.hpp"
#include "engine/kernels.hpp"
#include "engine/tcm.hpp"
#include "graph/tile_plan.hpp"

namespace perceptd::engine {

/// GGUF Q4_0 blocks, row-major: 18 bytes per 32 weights (FeedForwardShape::weight_group_bytes).
struct FeedForwardBlock {
    const std::byte* gate_up = nullptr;  ///< 2 x ffn rows of hidden weights: 32 of gate and 32 of up in turn
    const std::byte* down = nullptr;     ///< hidden rows of ffn weights
};

/// Quantized rows, one ActivationGroup (40 bytes: FeedForwardShape::activation_group_bytes) per 32 elements.
struct FeedForwardRows {
    const ActivationGroup* x = nullptr;     ///< tokens x hidden, normalized
    ActivationGroup* normalized = nullptr;  ///< unfused: where the norm leaves its rows; like x
    ActivationGroup* between = nullptr;     ///< unfused: tokens x ffn
    ActivationGroup* out = nullptr;         ///< tokens x hidden
};

/// Linear, SwiGLU, quantized output, down projection, quantized output. False: a value that is no number was met.
/// The unfused form moves the rows of x once more, as its norm does.
[[nodiscard]] bool run_feed_forward(Tcm& tcm, const KernelTable& kernels, const graph::FeedForwardShape& shape,
                                    const graph::FeedForwardTiling& tiling, const FeedForwardBlock& weights,
                                    const FeedForwardRows& rows) noexcept;

}  // namespace perceptd::engine

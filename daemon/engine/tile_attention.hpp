// Runs the queries of one key-value head tile by tile in a Tcm, as a plan of graph/tile_plan says.
// Owns nothing. Never fast: it is scalar; its online softmax is the algorithm of the engine's kernel in other tiles.
#pragma once

#include <cstdint>

#include "engine/tcm.hpp"
#include "graph/tile_plan.hpp"

namespace perceptd::engine {

/// softmax(q k' * scale) v over all positions; q and out float rows of head_dim, keys and values F16 rows
/// (element sizes 4 and 2). `scores`: query_rows x positions floats in DRAM, used by the unfused form.
void run_attention(Tcm& tcm, const graph::AttentionTileShape& shape, const graph::AttentionTiling& tiling, float scale,
                   const float* queries, const std::uint16_t* keys, const std::uint16_t* values, float* scores,
                   float* out) noexcept;

}  // namespace perceptd::engine

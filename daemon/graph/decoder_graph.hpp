// Builds the unfused graph of a Llama-family decoder: one node per operation, as the papers write it.
// Owns nothing. Never looks at weight bytes: names, shapes and packed sizes are enough.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "graph/ir.hpp"

namespace perceptd::graph {

/// The hyper-parameters that decide the graph.
struct DecoderShape {
    std::uint32_t vocabulary_size = 0;
    std::uint32_t hidden_width = 0;
    std::uint32_t ffn_width = 0;
    std::uint32_t layer_count = 0;
    AttentionShape attention;
    float norm_epsilon = 1e-5F;
    bool qkv_bias = false;     ///< qwen2
    bool tied_output = false;  ///< the output matrix is the embedding table
};

/// What the engine says about a weight of that name and shape: its packed size and the form of input it takes.
struct WeightForm {
    std::uint64_t bytes = 0;
    Format activation = Format::Q8;
};
using WeightFormOf = std::function<WeightForm(std::string_view name, std::uint32_t rows, std::uint32_t cols)>;

/// Weights carry GGUF's names ("blk.0.attn_q.weight"). Throws Error(InvalidArgument) for a shape with a zero, with
/// query heads that are no multiple of the key heads, or with an odd head dimension.
[[nodiscard]] Graph build_decoder(const DecoderShape& shape, const WeightFormOf& form_of);

}  // namespace perceptd::graph

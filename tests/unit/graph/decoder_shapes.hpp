// Shapes that the graph tests share.
#pragma once

#include "graph/decoder_graph.hpp"

namespace perceptd::graph {

/// 4.5 bits per weight for matrices, F32 for vectors.
inline WeightForm q4_form(std::string_view, std::uint32_t rows, std::uint32_t cols) {
    return rows == 1 ? WeightForm{std::uint64_t{4} * cols, Format::F32}
                     : WeightForm{std::uint64_t{rows} * cols / 32 * 18, Format::Q8};
}

inline DecoderShape small_shape() {
    return {.vocabulary_size = 320,
            .hidden_width = 64,
            .ffn_width = 160,
            .layer_count = 2,
            .attention = {.query_heads = 4, .kv_heads = 2, .head_dim = 16}};
}

inline Graph small_graph() {
    return build_decoder(small_shape(), q4_form);
}

}  // namespace perceptd::graph

// The shape of a Llama-family decoder (llama, qwen2) and where its weights lie. Owns the numbers; the weights stay in
// the file. Never fills in what a file does not say when it matters, never ignores a tensor that it does not know: such
// a model would run and be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weights.hpp"

namespace perceptd::model {

enum class Family : std::uint8_t { Llama, Qwen2 };

/// Which two elements of a head are turned together.
enum class RopePairs : std::uint8_t {
    Neighbours,  ///< 2i and 2i + 1 (llama files)
    Halves,      ///< i and i + head_dim / 2 (qwen2 files)
};

enum class RopeScaling : std::uint8_t {
    None,
    Linear,   ///< positions are divided by `factor`
    Factors,  ///< frequency i is divided by `frequency_factors[i]` (Llama 3: tensor rope_freqs.weight)
};

struct Rope {
    float theta = 10000;
    std::uint32_t dimension_count = 0;  ///< leading elements of a head that are turned
    RopePairs pairs = RopePairs::Neighbours;
    RopeScaling scaling = RopeScaling::None;
    float factor = 1;
    std::vector<float> frequency_factors;  ///< dimension_count / 2, only with Factors
};

struct DecoderConfig {
    Family family = Family::Llama;
    std::uint32_t context_tokens = 0;
    std::uint32_t width = 0;  ///< of the residual stream
    std::uint32_t layer_count = 0;
    std::uint32_t head_count = 0;
    std::uint32_t kv_head_count = 0;  ///< divides head_count
    std::uint32_t head_dim = 0;
    std::uint32_t feed_forward_width = 0;
    std::uint32_t vocabulary_size = 0;
    float norm_epsilon = 0;
    bool has_tied_embeddings = false;  ///< the output matrix is the embedding table
    bool has_qkv_bias = false;
    Rope rope;
};

/// One tensor that a decoder of this shape needs.
struct TensorRequirement {
    std::string name;
    std::uint64_t columns = 0;
    std::uint64_t rows = 1;
    bool is_f32 = false;  ///< norms and biases
};

/// Every tensor of a decoder of this shape, in the order of the computation.
[[nodiscard]] std::vector<TensorRequirement> required_tensors(const DecoderConfig& config);

struct LayerWeights {
    WeightMatrix attention_norm;
    WeightMatrix query;
    WeightMatrix key;
    WeightMatrix value;
    WeightMatrix query_bias;  ///< rows 0 when there is none
    WeightMatrix key_bias;
    WeightMatrix value_bias;
    WeightMatrix attention_output;
    WeightMatrix feed_forward_norm;
    WeightMatrix gate;
    WeightMatrix up;
    WeightMatrix down;
};

/// The matrices point into the file's bytes.
struct Decoder {
    DecoderConfig config;
    WeightMatrix token_embedding;
    std::vector<LayerWeights> layers;
    WeightMatrix output_norm;
    WeightMatrix output;  ///< the embedding table again when tied

    /// Bytes of weights that one pass over a token reads: all but the embedding table, plus one row of it.
    [[nodiscard]] std::uint64_t bytes_per_pass() const noexcept;
};

/// The shape and the weights, checked against each other. Throws Error(InvalidArgument or Unsupported): which key or
/// tensor, what it is, what it should be.
[[nodiscard]] Decoder read_decoder(const Gguf& file);

}  // namespace perceptd::model

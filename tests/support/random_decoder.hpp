// A small decoder with random weights as the bytes of a GGUF file, for tests of what reads or runs one.
// Owns the bytes. Never a model that says anything: its weights are noise, scaled so that activations stay near 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/decoder_config.hpp"

namespace perceptd::support {

struct RandomDecoderOptions {
    model::Encoding encoding = model::Encoding::Q4_0;
    std::uint32_t width = 128;
    std::uint32_t feed_forward_width = 256;
    std::uint32_t layer_count = 2;
    std::uint32_t head_count = 4;
    std::uint32_t kv_head_count = 2;
    std::uint32_t vocabulary_size = 320;
    bool tied = false;
    bool qwen2 = false;  ///< other rotary order, biases
    std::uint64_t seed = 1;
    /// The encoding of one tensor; empty: `encoding` for all matrices.
    std::function<model::Encoding(std::string_view name)> encoding_of;
};

[[nodiscard]] std::vector<std::byte> random_decoder(const RandomDecoderOptions& options);

/// The same decoder computed in double from the stored weights: logits of the last token. No quantized activations, no
/// cache, no fused operation: the plain formulas.
[[nodiscard]] std::vector<double> reference_logits(const model::Decoder& decoder,
                                                   const std::vector<std::uint32_t>& tokens);

}  // namespace perceptd::support

// The token sequences that a model is calibrated or judged on: pieces of a text, or random ids. Owns nothing. Never
// longer than the model's context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/loaded_model.hpp"

namespace perceptd::model_tool {

struct SampleOptions {
    std::string text_path;         ///< empty: random ids
    std::uint32_t tokens = 512;    ///< in all; fewer when the text is shorter
    std::uint32_t sequence = 128;  ///< tokens of one sequence
    std::uint64_t seed = 1;        ///< of random ids
};

/// Sequences of at least two tokens. Throws std::system_error for a text that cannot be read and
/// Error(InvalidArgument) for one that is too short, or a `sequence` beyond the model's context.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> token_sample(const model::DecoderFile& model,
                                                                   const SampleOptions& options);

}  // namespace perceptd::model_tool

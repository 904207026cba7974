// A made-up vocabulary of any size in the llama (SentencePiece) manner: 3 marks, 256 byte tokens, characters, and
// pieces that merge from smaller ones. Owns nothing. The same size always gives the same vocabulary, so that models of
// different shapes can draft for each other.
#pragma once

#include <cstdint>

#include "model/gguf_writer.hpp"

namespace perceptd::model_tool {

/// The smallest vocabulary: the marks, the bytes and the characters.
inline constexpr std::uint32_t kMinVocabularySize = 512;

/// Adds the tokenizer.ggml.* entries for exactly `size` tokens; `size` >= kMinVocabularySize.
void add_random_vocabulary(model::GgufWriter& header, std::uint32_t size);

}  // namespace perceptd::model_tool

// A user's text in the model's manner of asking. Owns nothing. Never lets the user's text speak in the model's own
// marks: only the template's are read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer.hpp"

namespace perceptd::generate {

/// Where the user's text stands in a template.
inline constexpr std::string_view kPromptMark = "{prompt}";

/// The ids of `form` with `text` for its first mark, behind the vocabulary's begin token; no end token. Throws
/// Error(InvalidArgument) for a template without mark, and what Tokenizer::encode() throws.
[[nodiscard]] std::vector<std::uint32_t> encode_prompt(const model::Tokenizer& tokenizer, std::string_view form,
                                                       std::string_view text);

}  // namespace perceptd::generate

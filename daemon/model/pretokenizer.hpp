// Cuts text into the words that byte-level BPE merges within: the published regular expressions, written by hand. Owns
// nothing. Never backtracks over more than one run of white space, so time is linear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace perceptd::model {

enum class Pretokenizer : std::uint8_t {
    /// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    Gpt2,
    /// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
    /// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
    Llama3,
    /// as Llama3, but \p{N} instead of \p{N}{1,3}
    Qwen2,
};

/// The value of tokenizer.ggml.pre: "default" and "gpt-2" are Gpt2, then "llama-bpe" and "qwen2".
[[nodiscard]] std::optional<Pretokenizer> pretokenizer_from(std::string_view name) noexcept;

/// Bytes of the first word of `text`; at least 1 for a text that is not empty. Bytes that are no UTF-8 count as
/// symbols. The (?i:) letters are ASCII. Real-time safe.
[[nodiscard]] std::size_t first_word_bytes(std::string_view text, Pretokenizer pretokenizer) noexcept;

}  // namespace perceptd::model

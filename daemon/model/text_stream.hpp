// Token ids to text, one at a time, as a model makes them. Owns up to three held-back bytes; borrows the vocabulary.
// Never gives out half a character: the pieces are UTF-8 each, and together the whole text.
#pragma once

#include <string>

#include "model/vocabulary.hpp"

namespace perceptd::model {

struct DecodeOptions {
    bool writes_control_tokens = false;
    bool continues_text = false;  ///< the first token follows a text: its leading space is one
};

/// Thread-bound. `vocabulary` outlives it.
class TextStream {
public:
    explicit TextStream(const Vocabulary& vocabulary, DecodeOptions options = {}) noexcept
        : vocabulary_(&vocabulary),
          writes_control_tokens_(options.writes_control_tokens),
          drops_space_(vocabulary.adds_space_prefix() && !options.continues_text) {}

    /// What `id` adds to the text, possibly nothing yet. Bytes that no further byte can make a character become U+FFFD.
    /// Throws Error(InvalidArgument) for an id that the vocabulary does not have.
    [[nodiscard]] std::string push(TokenId id);
    /// The rest; a character that was cut becomes U+FFFD. The stream starts again afterwards.
    [[nodiscard]] std::string finish();

private:
    friend std::string decode_bytes(const Vocabulary& vocabulary, std::span<const TokenId> ids);
    void take(TokenId id);
    std::string complete(bool is_last);

    const Vocabulary* vocabulary_;
    bool writes_control_tokens_;
    bool drops_space_;  // the space that encoding put before the text
    std::string held_;
};

/// What `ids` write, without their control tokens, as encode() took it: exact also where the bytes are no UTF-8.
/// Throws as TextStream::push().
[[nodiscard]] std::string decode_bytes(const Vocabulary& vocabulary, std::span<const TokenId> ids);

}  // namespace perceptd::model

// Text to token ids. Owns its vocabulary. Never reads control tokens out of a text unless asked, so that a user's text
// cannot speak in the model's own marks; never loses a byte where the vocabulary has byte tokens.
#pragma once

#include <string_view>
#include <vector>

#include "model/vocabulary.hpp"

namespace perceptd::model {

struct EncodeOptions {
    bool reads_control_tokens = false;  ///< "<|end|>" in the text becomes the token: for templates, never for user text
    bool adds_bos_eos = true;           ///< as the vocabulary says
};

/// Immutable; encode() may be called from any thread. Allocates: not for real-time threads.
class Tokenizer {
public:
    static constexpr std::size_t kMaxTextBytes = 16U << 20;

    explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

    [[nodiscard]] const Vocabulary& vocabulary() const noexcept { return vocabulary_; }

    /// The ids of `text`, O(n log n). Bytes that are no UTF-8 are encoded as bytes. User-defined tokens are always
    /// read. A literal U+2581 stays itself and does not become a space. Throws Error(QuotaExceeded) beyond
    /// kMaxTextBytes.
    [[nodiscard]] std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

private:
    void encode_plain(std::string_view text, std::vector<TokenId>& ids) const;
    void encode_characters(std::string_view text, std::vector<TokenId>& ids) const;
    void encode_word(std::string_view word, std::vector<TokenId>& ids) const;
    void put_bytes(std::string_view bytes, std::vector<TokenId>& ids) const;

    Vocabulary vocabulary_;
};

}  // namespace perceptd::model

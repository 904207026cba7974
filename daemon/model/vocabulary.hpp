// The vocabulary inside a GGUF file: what each token id stands for, and the rules that go with it. Owns copies of
// everything (the file may go). Never guesses: a vocabulary that cannot encode every byte is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/digest.hpp"
#include "model/gguf.hpp"
#include "model/pretokenizer.hpp"

namespace perceptd::model {

using TokenId = std::int32_t;

enum class VocabularyKind : std::uint8_t {
    SentencePiece = 1,  ///< "llama": merges by score, byte tokens for the rest
    ByteBpe = 2,        ///< "gpt2": merges by rank inside pre-tokenized words
};

/// The numbers are the file's.
enum class TokenKind : std::uint8_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

struct VocabularyDifference {
    std::optional<TokenId> id;  ///< the first id that differs; empty: the rules differ, not the tokens
    std::string text;           ///< both sides, for people
};

/// Immutable; safe to read from any thread.
class Vocabulary {
public:
    static constexpr std::uint64_t kMaxTokenCount = 1U << 20;
    static constexpr std::uint64_t kMaxTokenBytes = 1U << 16;

    /// Reads the tokenizer.ggml.* entries. Time O(n log n). Throws Error(InvalidArgument or Unsupported).
    [[nodiscard]] static Vocabulary from(const Gguf& file);

    [[nodiscard]] VocabularyKind kind() const noexcept { return kind_; }
    [[nodiscard]] Pretokenizer pretokenizer() const noexcept { return pretokenizer_; }
    [[nodiscard]] std::size_t size() const noexcept { return kinds_.size(); }
    [[nodiscard]] bool contains(TokenId id) const noexcept { return id >= 0 && static_cast<std::size_t>(id) < size(); }
    /// What the token writes; for a control token its name. `id` must be contained.
    [[nodiscard]] std::string_view bytes_of(TokenId id) const noexcept;
    [[nodiscard]] TokenKind kind_of(TokenId id) const noexcept { return kinds_[static_cast<std::size_t>(id)]; }
    [[nodiscard]] float score_of(TokenId id) const noexcept { return scores_[static_cast<std::size_t>(id)]; }

    [[nodiscard]] std::optional<TokenId> bos() const noexcept { return bos_; }
    [[nodiscard]] std::optional<TokenId> eos() const noexcept { return eos_; }
    [[nodiscard]] std::optional<TokenId> unknown() const noexcept { return unknown_; }
    [[nodiscard]] bool adds_bos() const noexcept { return adds_bos_; }
    [[nodiscard]] bool adds_eos() const noexcept { return adds_eos_; }
    /// SentencePiece: a space is put before the text, and taken away again when decoding.
    [[nodiscard]] bool adds_space_prefix() const noexcept { return adds_space_prefix_; }

    /// The normal or user-defined token that writes exactly `bytes`. O(log n).
    [[nodiscard]] std::optional<TokenId> find(std::string_view bytes) const noexcept;
    /// The token of a single byte; empty only in a SentencePiece vocabulary without byte tokens.
    [[nodiscard]] std::optional<TokenId> byte_token(std::uint8_t byte) const noexcept;
    /// The longest user-defined (and, if asked, control) token at the start of `text`.
    [[nodiscard]] std::optional<TokenId> longest_special(std::string_view text, bool with_control) const noexcept;

    struct Merge {
        std::uint32_t rank = 0;
        TokenId merged = 0;
    };
    /// ByteBpe: what `left` and `right` merge into.
    [[nodiscard]] std::optional<Merge> find_merge(TokenId left, TokenId right) const noexcept;

    /// SHA-256 over the type, bos, eos, their add flags and the bytes of every id: equal digests mean that ids mean the
    /// same. Draft and target models must agree in it.
    [[nodiscard]] Digest digest() const;

private:
    friend class VocabularyReader;
    Vocabulary() = default;

    VocabularyKind kind_ = VocabularyKind::SentencePiece;
    Pretokenizer pretokenizer_ = Pretokenizer::Gpt2;
    std::string text_;                 // the bytes of all tokens
    std::vector<std::uint64_t> ends_;  // where each ends in text_
    std::vector<TokenKind> kinds_;
    std::vector<float> scores_;
    std::vector<TokenId> by_bytes_;  // normal and user-defined, in the order of their bytes, then ids
    std::vector<TokenId> specials_;  // control and user-defined, likewise
    std::array<TokenId, 256> byte_tokens_{};
    struct MergeEntry {
        std::uint64_t pair;
        Merge merge;
    };
    std::vector<MergeEntry> merges_;  // in the order of their pairs
    std::optional<TokenId> bos_;
    std::optional<TokenId> eos_;
    std::optional<TokenId> unknown_;
    bool adds_bos_ = false;
    bool adds_eos_ = false;
    bool adds_space_prefix_ = false;
};

/// What keeps two vocabularies from being exchangeable, or nothing when their digests agree.
[[nodiscard]] std::optional<VocabularyDifference> first_difference(const Vocabulary& a, const Vocabulary& b);

}  // namespace perceptd::model

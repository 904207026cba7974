// The identity of a vocabulary, and what to tell the person whose two vocabularies differ.
#include <algorithm>

#include "model/utf8.hpp"
#include "model/vocabulary.hpp"

namespace perceptd::model {
namespace {

std::uint64_t word_of(std::optional<TokenId> id) noexcept {
    return id ? static_cast<std::uint64_t>(*id) : ~std::uint64_t{0};
}

std::string shown(std::optional<TokenId> id) {
    return id ? std::to_string(*id) : "none";
}

std::string kind_name(VocabularyKind kind) {
    return kind == VocabularyKind::SentencePiece ? "llama" : "gpt2";
}

std::string shown_token(const Vocabulary& vocabulary, TokenId id) {
    return vocabulary.contains(id) ? "\"" + printable(vocabulary.bytes_of(id)) + "\"" : "no such id";
}

}  // namespace

Digest Vocabulary::digest() const {
    Sha256 sha;
    sha.add("perceptd vocabulary 1\n");
    sha.add_u64(static_cast<std::uint64_t>(kind_));
    sha.add_u64(word_of(bos_));
    sha.add_u64(word_of(eos_));
    sha.add_u64(adds_bos_ ? 1 : 0);
    sha.add_u64(adds_eos_ ? 1 : 0);
    sha.add_u64(size());
    for (std::size_t i = 0; i < size(); ++i) {
        const std::string_view bytes = bytes_of(static_cast<TokenId>(i));
        sha.add_u64(bytes.size());
        sha.add(bytes);
    }
    return sha.finish();
}

std::optional<VocabularyDifference> first_difference(const Vocabulary& a, const Vocabulary& b) {
    const auto rule = [](const std::string& what, const std::string& left, const std::string& right) {
        return VocabularyDifference{std::nullopt, what + ": " + left + " and " + right};
    };
    if (a.kind() != b.kind()) {
        return rule("tokenizer type", kind_name(a.kind()), kind_name(b.kind()));
    }
    const std::size_t count = std::max(a.size(), b.size());
    for (std::size_t i = 0; i < count; ++i) {
        const auto id = static_cast<TokenId>(i);
        if (!a.contains(id) || !b.contains(id) || a.bytes_of(id) != b.bytes_of(id)) {
            return VocabularyDifference{
                id, "token " + std::to_string(i) + ": " + shown_token(a, id) + " and " + shown_token(b, id)};
        }
    }
    if (a.bos() != b.bos()) {
        return rule("first token", shown(a.bos()), shown(b.bos()));
    }
    if (a.eos() != b.eos()) {
        return rule("last token", shown(a.eos()), shown(b.eos()));
    }
    if (a.adds_bos() != b.adds_bos()) {
        return rule("first token is added", a.adds_bos() ? "yes" : "no", b.adds_bos() ? "yes" : "no");
    }
    if (a.adds_eos() != b.adds_eos()) {
        return rule("last token is added", a.adds_eos() ? "yes" : "no", b.adds_eos() ? "yes" : "no");
    }
    return std::nullopt;
}

}  // namespace perceptd::model

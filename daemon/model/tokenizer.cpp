// Both kinds merge neighbours by priority: a linked list of symbols, and a heap of the pairs that could merge. A pair
// that has become stale is recognised by its length and skipped, so every merge costs O(log n).
#include "model/tokenizer.hpp"

#include <cstdint>
#include <queue>

#include "base/error.hpp"
#include "model/utf8.hpp"

namespace perceptd::model {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr TokenId kNoToken = -1;

struct Symbol {
    std::uint32_t start = 0;
    std::uint32_t byte_count = 0;  // 0: merged into its left neighbour
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
    TokenId id = kNoToken;  // -1: no token writes these bytes
};

struct Candidate {
    float priority = 0;
    std::uint32_t left = 0;
    std::uint32_t right = 0;
    std::uint32_t byte_count = 0;  // of both when this was found
    TokenId merged = kNoToken;

    /// Order of the heap: the highest priority first, then the leftmost.
    bool operator<(const Candidate& other) const noexcept {
        return priority != other.priority ? priority < other.priority : left > other.left;
    }
};

/// Merges until nothing can merge. `find(left, right, candidate)` fills priority and merged, or gives back false.
template <typename Find>
void merge_all(std::vector<Symbol>& symbols, Find find) {
    std::priority_queue<Candidate> heap;
    const auto consider = [&](std::uint32_t left) {
        if (left == kNone || symbols[left].after == kNone) {
            return;
        }
        Candidate candidate;
        candidate.left = left;
        candidate.right = symbols[left].after;
        candidate.byte_count = symbols[left].byte_count + symbols[candidate.right].byte_count;
        if (find(symbols[left], symbols[candidate.right], candidate)) {
            heap.push(candidate);
        }
    };
    for (std::uint32_t i = 0; i < symbols.size(); ++i) {
        consider(i);
    }
    while (!heap.empty()) {
        const Candidate best = heap.top();
        heap.pop();
        Symbol& left = symbols[best.left];
        Symbol& right = symbols[best.right];
        if (left.byte_count == 0 || right.byte_count == 0 || left.byte_count + right.byte_count != best.byte_count) {
            continue;
        }
        left.byte_count = best.byte_count;
        left.id = best.merged;
        left.after = right.after;
        right.byte_count = 0;
        if (left.after != kNone) {
            symbols[left.after].before = best.left;
        }
        consider(left.before);
        consider(best.left);
    }
}

void append(std::vector<Symbol>& symbols, std::size_t byte_count, TokenId id) {
    const auto index = static_cast<std::uint32_t>(symbols.size());
    const std::uint32_t start = symbols.empty() ? 0 : symbols.back().start + symbols.back().byte_count;
    if (index > 0) {
        symbols.back().after = index;
    }
    symbols.push_back({start, static_cast<std::uint32_t>(byte_count), index == 0 ? kNone : index - 1, kNone, id});
}

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    if (text.size() > kMaxTextBytes) {
        Error error(ErrorCode::QuotaExceeded, "a text of " + std::to_string(text.size()) + " bytes; at most " +
                                                  std::to_string(kMaxTextBytes) +
                                                  " are tokenized at once, send it in parts");
        error.limit = kMaxTextBytes;
        error.used = text.size();
        throw error;
    }
    std::vector<TokenId> ids;
    if (options.adds_bos_eos && vocabulary_.adds_bos()) {
        ids.push_back(*vocabulary_.bos());
    }
    bool is_after_special = true;
    const auto flush = [&](std::string_view plain) {
        if (!plain.empty()) {
            // SentencePiece treats the text after a mark like the start of a text.
            const bool has_prefix = vocabulary_.adds_space_prefix() && is_after_special;
            encode_plain(has_prefix ? " " + std::string(plain) : std::string(plain), ids);
            is_after_special = false;
        }
    };
    std::size_t plain_start = 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto special = vocabulary_.longest_special(text.substr(at), options.reads_control_tokens);
        if (!special) {
            ++at;
            continue;
        }
        flush(text.substr(plain_start, at - plain_start));
        ids.push_back(*special);
        is_after_special = vocabulary_.kind_of(*special) == TokenKind::Control;
        at += vocabulary_.bytes_of(*special).size();
        plain_start = at;
    }
    flush(text.substr(plain_start));
    if (options.adds_bos_eos && vocabulary_.adds_eos()) {
        ids.push_back(*vocabulary_.eos());
    }
    return ids;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<TokenId>& ids) const {
    if (vocabulary_.kind() == VocabularyKind::SentencePiece) {
        return encode_characters(text, ids);
    }
    while (!text.empty()) {
        const std::size_t byte_count = first_word_bytes(text, vocabulary_.pretokenizer());
        encode_word(text.substr(0, byte_count), ids);
        text.remove_prefix(byte_count);
    }
}

void Tokenizer::encode_characters(std::string_view text, std::vector<TokenId>& ids) const {
    std::vector<Symbol> symbols;
    for (std::string_view rest = text; !rest.empty();) {
        const std::size_t byte_count = first_code_point(rest).byte_count;
        append(symbols, byte_count, vocabulary_.find(rest.substr(0, byte_count)).value_or(kNoToken));
        rest.remove_prefix(byte_count);
    }
    merge_all(symbols, [&](const Symbol& left, const Symbol&, Candidate& candidate) {
        const auto id = vocabulary_.find(text.substr(left.start, candidate.byte_count));
        if (id) {
            candidate.merged = *id;
            candidate.priority = vocabulary_.score_of(*id);
        }
        return id.has_value();
    });
    for (std::uint32_t i = 0; i < symbols.size(); i = symbols[i].after) {
        if (symbols[i].id != kNoToken) {
            ids.push_back(symbols[i].id);
        } else {
            put_bytes(text.substr(symbols[i].start, symbols[i].byte_count), ids);
        }
    }
}

void Tokenizer::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
    // Llama 3's own tokenizer takes a word that is a token as a whole, whatever the merges say.
    if (vocabulary_.pretokenizer() == Pretokenizer::Llama3) {
        if (const auto whole = vocabulary_.find(word)) {
            ids.push_back(*whole);
            return;
        }
    }
    std::vector<Symbol> symbols;
    for (const char byte : word) {
        append(symbols, 1, *vocabulary_.byte_token(static_cast<std::uint8_t>(byte)));
    }
    merge_all(symbols, [&](const Symbol& left, const Symbol& right, Candidate& candidate) {
        const auto merge = vocabulary_.find_merge(left.id, right.id);
        if (merge) {
            candidate.merged = merge->merged;
            candidate.priority = -static_cast<float>(merge->rank);  // exact: ranks stay below 2^20
        }
        return merge.has_value();
    });
    for (std::uint32_t i = 0; i < symbols.size(); i = symbols[i].after) {
        ids.push_back(symbols[i].id);
    }
}

void Tokenizer::put_bytes(std::string_view bytes, std::vector<TokenId>& ids) const {
    if (!vocabulary_.byte_token(0)) {
        ids.push_back(*vocabulary_.unknown());
        return;
    }
    for (const char byte : bytes) {
        ids.push_back(*vocabulary_.byte_token(static_cast<std::uint8_t>(byte)));
    }
}

}  // namespace perceptd::model

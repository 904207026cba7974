// From tokenizer.ggml.* to tables that are searched by bisection: no hash that a hostile file could fill with
// collisions.
#include "model/vocabulary.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "model/blocks.hpp"
#include "model/utf8.hpp"

namespace perceptd::model {
namespace {

constexpr TokenId kNoToken = -1;
constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, how SentencePiece writes a space

/// The 256 characters by which byte-level vocabularies write bytes: printable Latin-1 as itself, the rest from U+0100
/// on.
const std::array<std::int16_t, 512>& byte_alphabet() {
    static const std::array<std::int16_t, 512> bytes = [] {
        std::array<std::int16_t, 512> made{};
        made.fill(-1);
        char32_t next = 0x100;
        for (std::int16_t byte = 0; byte < 256; ++byte) {
            const bool is_itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
            made[is_itself ? static_cast<char32_t>(byte) : next++] = byte;
        }
        return made;
    }();
    return bytes;
}

/// `piece` written in that alphabet, as bytes; a piece that uses other characters is taken as it is.
std::string from_byte_alphabet(std::string_view piece) {
    std::string bytes;
    for (std::string_view rest = piece; !rest.empty();) {
        const CodePoint point = first_code_point(rest);
        if (!point.is_valid || point.value >= byte_alphabet().size() || byte_alphabet()[point.value] < 0) {
            return std::string(piece);
        }
        bytes.push_back(static_cast<char>(byte_alphabet()[point.value]));
        rest.remove_prefix(point.byte_count);
    }
    return bytes;
}

std::string with_spaces(std::string_view piece) {
    std::string bytes;
    for (std::size_t at = 0; at < piece.size();) {
        const bool is_mark = piece.substr(at).starts_with(kSpaceMark);
        bytes.push_back(is_mark ? ' ' : piece[at]);
        at += is_mark ? kSpaceMark.size() : 1;
    }
    return bytes;
}

/// The byte of "<0x41>".
std::optional<std::uint8_t> byte_of_piece(std::string_view piece) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') {
        return std::nullopt;
    }
    const auto high = kDigits.find(piece[3]);
    const auto low = kDigits.find(piece[4]);
    if (high == std::string_view::npos || low == std::string_view::npos) {
        return std::nullopt;
    }
    return static_cast<std::uint8_t>(high * 16 + low);
}

std::uint64_t pair_key(TokenId left, TokenId right) noexcept {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

}  // namespace

class VocabularyReader {
public:
    explicit VocabularyReader(const Gguf& file) : file_(file) {}

    Vocabulary read() {
        read_kind();
        read_tokens();
        build_indexes();
        if (made_.kind_ == VocabularyKind::ByteBpe) {
            read_merges();
        }
        read_rules();
        return std::move(made_);
    }

private:
    [[noreturn]] void refuse(std::string_view key, const std::string& reason,
                             ErrorCode code = ErrorCode::InvalidArgument) const {
        throw Error(code, file_.label() + ": tokenizer.ggml." + std::string(key) + ": " + reason);
    }

    [[nodiscard]] const GgufValue* find(std::string_view key) const {
        return file_.find("tokenizer.ggml." + std::string(key));
    }

    [[nodiscard]] const GgufValue* find_array(std::string_view key, GgufType element, std::uint64_t max) const {
        const GgufValue* const value = find(key);
        if (value != nullptr &&
            (value->type != GgufType::Array || value->element_type != element || value->count > max)) {
            refuse(key, "not a list of the right type with at most " + std::to_string(max) + " elements");
        }
        return value;
    }

    void read_kind() {
        const GgufValue* const value = find("model");
        const auto name = value == nullptr ? std::nullopt : value->as_text();
        if (name != "llama" && name != "gpt2") {
            refuse("model", (name ? printable(*name) : "missing") + "; llama and gpt2 are known",
                   ErrorCode::Unsupported);
        }
        made_.kind_ = name == "llama" ? VocabularyKind::SentencePiece : VocabularyKind::ByteBpe;
        const GgufValue* const pre = find("pre");
        if (made_.kind_ == VocabularyKind::ByteBpe && pre != nullptr) {
            const auto pretokenizer = pretokenizer_from(pre->as_text().value_or(""));
            if (!pretokenizer) {
                refuse("pre",
                       printable(pre->as_text().value_or("")) + "; default, gpt-2, llama-bpe and qwen2 are known",
                       ErrorCode::Unsupported);
            }
            made_.pretokenizer_ = *pretokenizer;
        }
    }

    void read_tokens() {
        const GgufValue* const tokens = find_array("tokens", GgufType::String, Vocabulary::kMaxTokenCount);
        if (tokens == nullptr || tokens->count == 0) {
            refuse("tokens", "missing or empty");
        }
        const std::uint64_t count = tokens->count;
        read_kinds(count);
        read_scores(count);
        made_.byte_tokens_.fill(kNoToken);
        made_.ends_.reserve(count);
        GgufStrings pieces(*tokens);
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::string_view piece = pieces.next();
            if (piece.size() > Vocabulary::kMaxTokenBytes) {
                refuse("tokens", "token " + std::to_string(i) + " has " + std::to_string(piece.size()) +
                                     " bytes; at most " + std::to_string(Vocabulary::kMaxTokenBytes) + " are read");
            }
            made_.text_ += bytes_of_piece(piece, static_cast<TokenId>(i));
            made_.ends_.push_back(made_.text_.size());
        }
    }

    std::string bytes_of_piece(std::string_view piece, TokenId id) {
        const TokenKind kind = made_.kind_of(id);
        if (kind == TokenKind::Byte) {
            const auto byte = byte_of_piece(piece);
            if (!byte) {
                refuse("tokens",
                       "byte token " + std::to_string(id) + " is " + printable(piece) + "; expected <0x00> .. <0xFF>");
            }
            made_.byte_tokens_[*byte] = id;
            return std::string(1, static_cast<char>(*byte));
        }
        if (kind == TokenKind::Control || kind == TokenKind::Unknown) {
            return std::string(piece);
        }
        if (made_.kind_ == VocabularyKind::SentencePiece) {
            return with_spaces(piece);
        }
        return kind == TokenKind::UserDefined ? std::string(piece) : from_byte_alphabet(piece);
    }

    void read_kinds(std::uint64_t count) {
        made_.kinds_.assign(count, TokenKind::Normal);
        const GgufValue* const kinds = find_array("token_type", GgufType::I32, Vocabulary::kMaxTokenCount);
        if (kinds == nullptr) {
            return;
        }
        require_count("token_type", kinds->count, count);
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint32_t kind = load_u32(kinds->bytes.subspan(4 * i));
            if (kind < 1 || kind > 6) {
                refuse("token_type",
                       "token " + std::to_string(i) + " is of type " + std::to_string(kind) + "; 1 .. 6 are known");
            }
            made_.kinds_[i] = static_cast<TokenKind>(kind);
        }
    }

    void read_scores(std::uint64_t count) {
        made_.scores_.assign(count, 0.0F);
        const GgufValue* const scores = find_array("scores", GgufType::F32, Vocabulary::kMaxTokenCount);
        if (scores == nullptr) {
            if (made_.kind_ == VocabularyKind::SentencePiece) {
                refuse("scores", "missing; a llama vocabulary merges by score");
            }
            return;
        }
        require_count("scores", scores->count, count);
        for (std::uint64_t i = 0; i < count; ++i) {
            made_.scores_[i] = std::bit_cast<float>(load_u32(scores->bytes.subspan(4 * i)));
            if (std::isnan(made_.scores_[i])) {
                refuse("scores", "the score of token " + std::to_string(i) + " is not a number");
            }
        }
    }

    void require_count(std::string_view key, std::uint64_t found, std::uint64_t wanted) const {
        if (found != wanted) {
            refuse(key, std::to_string(found) + " elements for " + std::to_string(wanted) + " tokens");
        }
    }

    void build_indexes() {
        for (std::size_t i = 0; i < made_.size(); ++i) {
            const auto id = static_cast<TokenId>(i);
            const TokenKind kind = made_.kind_of(id);
            if (made_.bytes_of(id).empty()) {
                continue;
            }
            if (kind == TokenKind::Normal || kind == TokenKind::UserDefined) {
                made_.by_bytes_.push_back(id);
            }
            if (kind == TokenKind::Control || kind == TokenKind::UserDefined) {
                made_.specials_.push_back(id);
            }
        }
        const auto in_order = [&](TokenId a, TokenId b) {
            return made_.bytes_of(a) != made_.bytes_of(b) ? made_.bytes_of(a) < made_.bytes_of(b) : a < b;
        };
        std::sort(made_.by_bytes_.begin(), made_.by_bytes_.end(), in_order);
        std::sort(made_.specials_.begin(), made_.specials_.end(), in_order);
        const bool is_bpe = made_.kind_ == VocabularyKind::ByteBpe;
        std::size_t byte_count = 0;
        for (std::size_t byte = 0; byte < made_.byte_tokens_.size(); ++byte) {
            if (is_bpe) {
                const char text = static_cast<char>(byte);
                made_.byte_tokens_[byte] = made_.find({&text, 1}).value_or(kNoToken);
            }
            byte_count += made_.byte_tokens_[byte] != kNoToken ? 1 : 0;
        }
        if (byte_count != made_.byte_tokens_.size() && (is_bpe || byte_count != 0)) {
            refuse("tokens", "only " + std::to_string(byte_count) +
                                 " of the 256 bytes have a token; some texts could not be encoded");
        }
    }

    void read_merges() {
        const GgufValue* const merges = find_array("merges", GgufType::String, Vocabulary::kMaxTokenCount);
        if (merges == nullptr) {
            refuse("merges", "missing; a gpt2 vocabulary needs its merges");
        }
        GgufStrings lines(*merges);
        for (std::uint64_t rank = 0; rank < merges->count; ++rank) {
            const std::string_view line = lines.next();
            const std::size_t space = line.find(' ', 1);
            const std::string left = from_byte_alphabet(line.substr(0, space));
            const std::string right = space == std::string_view::npos ? "" : from_byte_alphabet(line.substr(space + 1));
            const auto left_id = made_.find(left);
            const auto right_id = made_.find(right);
            const auto merged = made_.find(left + right);
            if (!left_id || !right_id || !merged) {
                refuse("merges", "merge " + std::to_string(rank) + " (" + printable(line) +
                                     ") names a token that does not exist");
            }
            made_.merges_.push_back({pair_key(*left_id, *right_id), {static_cast<std::uint32_t>(rank), *merged}});
        }
        // The lowest rank of a pair comes first, and is the one that find_merge() meets.
        std::sort(made_.merges_.begin(), made_.merges_.end(), [](const auto& a, const auto& b) {
            return a.pair != b.pair ? a.pair < b.pair : a.merge.rank < b.merge.rank;
        });
    }

    void read_rules() {
        const bool is_spm = made_.kind_ == VocabularyKind::SentencePiece;
        made_.bos_ = id("bos_token_id", is_spm ? std::optional<TokenId>(1) : std::nullopt);
        made_.eos_ = id("eos_token_id", is_spm ? std::optional<TokenId>(2) : std::nullopt);
        made_.unknown_ = id("unknown_token_id", is_spm ? std::optional<TokenId>(0) : std::nullopt);
        made_.adds_bos_ = flag("add_bos_token", is_spm || made_.pretokenizer_ == Pretokenizer::Llama3) && made_.bos_;
        made_.adds_eos_ = flag("add_eos_token", false) && made_.eos_;
        made_.adds_space_prefix_ = is_spm && flag("add_space_prefix", true);
        if (is_spm && !made_.byte_token(0) && !made_.unknown_) {
            refuse("unknown_token_id", "missing, and there are no byte tokens; some texts could not be encoded");
        }
    }

    [[nodiscard]] std::optional<TokenId> id(std::string_view key, std::optional<TokenId> otherwise) const {
        const GgufValue* const value = find(key);
        if (value == nullptr) {
            return otherwise && made_.contains(*otherwise) ? otherwise : std::nullopt;
        }
        const auto number = value->as_unsigned();
        // Converters write 2^32 - 1 for "none".
        if (number == 0xffffffffU) {
            return std::nullopt;
        }
        if (!number || *number >= made_.size()) {
            refuse(key, "not an id below " + std::to_string(made_.size()));
        }
        return static_cast<TokenId>(*number);
    }

    [[nodiscard]] bool flag(std::string_view key, bool otherwise) const {
        const GgufValue* const value = find(key);
        if (value != nullptr && !value->as_bool()) {
            refuse(key, "not a bool");
        }
        return value == nullptr ? otherwise : *value->as_bool();
    }

    const Gguf& file_;
    Vocabulary made_;
};

Vocabulary Vocabulary::from(const Gguf& file) {
    return VocabularyReader(file).read();
}

std::string_view Vocabulary::bytes_of(TokenId id) const noexcept {
    const auto index = static_cast<std::size_t>(id);
    const std::uint64_t start = index == 0 ? 0 : ends_[index - 1];
    return std::string_view(text_).substr(start, ends_[index] - start);
}

std::optional<TokenId> Vocabulary::find(std::string_view bytes) const noexcept {
    const auto found = std::lower_bound(by_bytes_.begin(), by_bytes_.end(), bytes,
                                        [this](TokenId id, std::string_view wanted) { return bytes_of(id) < wanted; });
    return found != by_bytes_.end() && bytes_of(*found) == bytes ? std::optional(*found) : std::nullopt;
}

std::optional<TokenId> Vocabulary::byte_token(std::uint8_t byte) const noexcept {
    return byte_tokens_[byte] == kNoToken ? std::nullopt : std::optional(byte_tokens_[byte]);
}

std::optional<TokenId> Vocabulary::longest_special(std::string_view text, bool with_control) const noexcept {
    // Narrows the range of specials that share the first `length` bytes of the text, byte by byte.
    std::optional<TokenId> best;
    auto first = specials_.begin();
    auto last = specials_.end();
    for (std::size_t length = 1; length <= text.size() && first != last; ++length) {
        const std::string_view prefix = text.substr(0, length);
        const auto below = [&](TokenId id, std::string_view wanted) { return bytes_of(id).substr(0, length) < wanted; };
        const auto above = [&](std::string_view wanted, TokenId id) { return wanted < bytes_of(id).substr(0, length); };
        first = std::lower_bound(first, last, prefix, below);
        last = std::upper_bound(first, last, prefix, above);
        for (auto at = first; at != last && bytes_of(*at).size() == length; ++at) {
            if (with_control || kind_of(*at) == TokenKind::UserDefined) {
                best = *at;
                break;
            }
        }
    }
    return best;
}

std::optional<Vocabulary::Merge> Vocabulary::find_merge(TokenId left, TokenId right) const noexcept {
    const std::uint64_t pair = pair_key(left, right);
    const auto found =
        std::lower_bound(merges_.begin(), merges_.end(), pair,
                         [](const MergeEntry& entry, std::uint64_t wanted) { return entry.pair < wanted; });
    return found != merges_.end() && found->pair == pair ? std::optional(found->merge) : std::nullopt;
}

}  // namespace perceptd::model

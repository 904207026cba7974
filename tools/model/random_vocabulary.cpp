// Pieces are joined from two earlier ones, so each can be reached by merging; frequent English letters come more often.
#include "random_vocabulary.hpp"

#include <array>
#include <set>
#include <string>
#include <vector>

#include "model/utf8.hpp"
#include "sensor/counter_rng.hpp"

namespace perceptd::model_tool {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

struct Pieces {
    std::vector<std::string> texts;
    std::vector<float> scores;
    std::vector<std::int32_t> kinds;

    void add(std::string text, float score, std::int32_t kind) {
        texts.push_back(std::move(text));
        scores.push_back(score);
        kinds.push_back(kind);
    }
};

void add_marks_and_bytes(Pieces& pieces) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    pieces.add("<unk>", 0, 2);
    pieces.add("<s>", 0, 3);
    pieces.add("</s>", 0, 3);
    for (std::size_t byte = 0; byte < 256; ++byte) {
        pieces.add(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", 0, 6);
    }
}

/// The space mark, printable ASCII, Latin-1 letters.
std::vector<std::string> characters() {
    std::vector<std::string> all{std::string(kSpaceMark)};
    for (char32_t value = '!'; value <= 0xff; ++value) {
        if (value < 0x7f || value >= 0xc0) {
            all.emplace_back();
            model::append_utf8(all.back(), value);
        }
    }
    return all;
}

}  // namespace

void add_random_vocabulary(model::GgufWriter& header, std::uint32_t size) {
    constexpr std::string_view kLetters =
        "eeeeeeeeeeeetttttttttaaaaaaaaooooooooiiiiiiinnnnnnnssssssrrrrrrhhhhhhddddlllluuucccmmmffyywwggppbbvkxqjz";
    constexpr std::size_t kMaxPieceBytes = 12;
    constexpr std::uint64_t kSeed = 1;
    Pieces pieces;
    add_marks_and_bytes(pieces);
    const std::vector<std::string> letters = characters();
    std::set<std::string> known(letters.begin(), letters.end());
    std::vector<std::string> words;
    for (std::uint64_t draw = 0; pieces.texts.size() + letters.size() < size; ++draw) {
        const auto pick = [&](std::uint64_t stream, bool can_lead) -> std::string {
            const std::uint64_t bits = sensor::random_bits(kSeed, stream, draw);
            if (can_lead && bits % 4 == 0) {
                return std::string(kSpaceMark);
            }
            if (words.empty() || (bits >> 8) % 3 == 0) {
                return std::string(1, kLetters[(bits >> 16) % kLetters.size()]);
            }
            return words[(bits >> 16) % words.size()];
        };
        std::string joined = pick(0, true);
        std::string right = pick(1, false);
        if (right.starts_with(kSpaceMark) || joined.size() + right.size() > kMaxPieceBytes) {
            continue;
        }
        joined += right;
        if (known.insert(joined).second) {
            words.push_back(joined);
            pieces.add(std::move(joined), -static_cast<float>(words.size()), 1);
        }
    }
    for (std::size_t i = 0; i < letters.size(); ++i) {
        pieces.add(letters[i], -static_cast<float>(words.size() + 1 + i), 1);
    }
    header.add_text("tokenizer.ggml.model", "llama");
    header.add_texts("tokenizer.ggml.tokens", pieces.texts);
    header.add_floats("tokenizer.ggml.scores", pieces.scores);
    header.add_integers("tokenizer.ggml.token_type", pieces.kinds);
    header.add_u32("tokenizer.ggml.bos_token_id", 1);
    header.add_u32("tokenizer.ggml.eos_token_id", 2);
    header.add_u32("tokenizer.ggml.unknown_token_id", 0);
    header.add_bool("tokenizer.ggml.add_bos_token", true);
    header.add_bool("tokenizer.ggml.add_eos_token", false);
}

}  // namespace perceptd::model_tool

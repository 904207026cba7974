#include "model/tokenizer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "base/error.hpp"
#include "model/text_stream.hpp"
#include "model/utf8.hpp"
#include "vocabulary_files.hpp"
#include "weight_source.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;

namespace {

void check_golden(const Tokenizer& tokenizer, const std::vector<TokenizerCase>& cases) {
    REQUIRE(cases.size() > 60);
    for (const TokenizerCase& one : cases) {
        INFO(printable(one.text, 200));
        CHECK(tokenizer.encode(one.text) == one.ids);
        CHECK(decode_bytes(tokenizer.vocabulary(), one.ids) == one.text);
    }
}

/// SentencePiece merging by the definition: look at all neighbours, merge the best, start again. O(n^2).
std::vector<TokenId> naive_merge(const Vocabulary& vocabulary, std::string text) {
    text.insert(0, " ");
    std::vector<std::string> parts;
    for (std::string_view rest = text; !rest.empty();) {
        parts.emplace_back(rest.substr(0, first_code_point(rest).byte_count));
        rest.remove_prefix(parts.back().size());
    }
    for (;;) {
        std::size_t best = parts.size();
        float best_score = -std::numeric_limits<float>::infinity();
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto id = vocabulary.find(parts[i] + parts[i + 1]);
            if (id && vocabulary.score_of(*id) > best_score) {
                best = i;
                best_score = vocabulary.score_of(*id);
            }
        }
        if (best == parts.size()) {
            break;
        }
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<TokenId> ids;
    for (const std::string& part : parts) {
        if (const auto id = vocabulary.find(part)) {
            ids.push_back(*id);
            continue;
        }
        for (const char byte : part) {
            ids.push_back(*vocabulary.byte_token(static_cast<std::uint8_t>(byte)));
        }
    }
    return ids;
}

std::string random_text(std::uint32_t seed, std::size_t count) {
    constexpr std::string_view kPool[] = {
        "t",    "h",    "e", " ", "a", "r", "\n", "the", "  ", "\xc3\xa9", "\xe4\xb8\x96",
        "\xff", "\xc3", "'", "s", "1", "!"};
    std::string text;
    for (const std::uint32_t value : lcg(seed, count)) {
        text += kPool[value % std::size(kPool)];
    }
    return text;
}

VocabularyParts with_marks(VocabularyParts parts) {
    parts.add("<|end|>", 3);
    parts.add("<|end|>!", 3);
    parts.add("<tool>", 4);
    return parts;
}

}  // namespace

TEST_CASE("Texts become the ids that SentencePiece gives") {
    check_golden(Tokenizer(spm_parts().read()), kSpmCases);
}

TEST_CASE("Texts become the ids that the regular expressions and the plain merge loop give") {
    check_golden(Tokenizer(bpe_parts("default").read()), kGpt2Cases);
    check_golden(Tokenizer(bpe_parts("gpt-2").read()), kGpt2Cases);
    check_golden(Tokenizer(bpe_parts("llama-bpe").read()), kLlama3Cases);
    check_golden(Tokenizer(bpe_parts("qwen2").read()), kQwen2Cases);
}

TEST_CASE("Merging with a heap is merging by looking at everything") {
    const Tokenizer tokenizer(spm_parts().read());
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
        const std::string text = random_text(seed, 40 + seed);
        REQUIRE(tokenizer.encode(text) == naive_merge(tokenizer.vocabulary(), text));
    }
}

TEST_CASE("Any bytes come back") {
    for (const VocabularyParts& parts :
         {spm_parts(), bpe_parts("default"), bpe_parts("llama-bpe"), bpe_parts("qwen2")}) {
        const Tokenizer tokenizer(parts.read());
        for (std::uint32_t seed = 1; seed <= 40; ++seed) {
            std::string text = random_text(seed, 60);
            for (const std::uint32_t value : lcg(seed + 1000, 60)) {
                text.push_back(static_cast<char>(value));
            }
            REQUIRE(decode_bytes(tokenizer.vocabulary(), tokenizer.encode(text)) == text);
        }
    }
}

TEST_CASE("Marks in a text are text unless they are asked for") {
    for (const VocabularyParts& parts : {with_marks(spm_parts()), with_marks(bpe_parts("qwen2"))}) {
        const Tokenizer tokenizer(parts.read());
        const Vocabulary& vocabulary = tokenizer.vocabulary();
        const auto end = static_cast<TokenId>(vocabulary.size() - 3);
        const auto count = [](const std::vector<TokenId>& ids, TokenId id) {
            return std::count(ids.begin(), ids.end(), id);
        };
        const std::string text = "a<|end|>b<|end|>!<tool>c";
        const auto plain = tokenizer.encode(text);
        CHECK(count(plain, end) == 0);
        CHECK(count(plain, end + 1) == 0);
        CHECK(count(plain, end + 2) == 1);
        CHECK(decode_bytes(vocabulary, plain) == text);
        const auto marked = tokenizer.encode(text, {true, true});
        CHECK(count(marked, end) == 1);
        CHECK(count(marked, end + 1) == 1);  // the longest wins
        CHECK(decode_bytes(vocabulary, marked) == "ab<tool>c");
    }
}

TEST_CASE("First and last token are added as the vocabulary says") {
    VocabularyParts parts = spm_parts();
    parts.flags = {{"add_bos_token", true}, {"add_eos_token", true}};
    const Tokenizer tokenizer(parts.read());
    const auto ids = tokenizer.encode("the");
    CHECK(ids.front() == 1);
    CHECK(ids.back() == 2);
    CHECK(tokenizer.encode("") == std::vector<TokenId>{1, 2});
    CHECK(tokenizer.encode("the", {false, false}) == std::vector<TokenId>(ids.begin() + 1, ids.end() - 1));
}

TEST_CASE("Characters without a token become the unknown token where there are no bytes") {
    VocabularyParts parts;
    parts.tokens = {"<unk>", "\xe2\x96\x81", "a"};
    parts.scores = {0, -1, -2};
    parts.kinds = {2, 1, 1};
    const Tokenizer tokenizer(parts.read());
    CHECK(tokenizer.encode("ab\xc3\xa9", {false, false}) == std::vector<TokenId>{1, 2, 0, 0});
}

TEST_CASE("A text of one very long word is tokenized, a longer than allowed refused") {
    const Tokenizer spm(spm_parts().read());
    const Tokenizer bpe(bpe_parts("default").read());
    std::string text;
    while (text.size() < 200'000) {
        text += "thethe";
    }
    CHECK(decode_bytes(spm.vocabulary(), spm.encode(text)) == text);
    CHECK(decode_bytes(bpe.vocabulary(), bpe.encode(text)) == text);
    CHECK(bpe.encode(std::string(200'000, ' ') + "x").size() > 2);
    CHECK_THROWS_WITH(spm.encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a')), Catch::Contains("send it in parts"));
}

TEST_CASE("Words are cut where the expression cuts") {
    const auto words = [](std::string_view text, Pretokenizer pretokenizer) {
        std::string cut;
        while (!text.empty()) {
            const std::size_t count = first_word_bytes(text, pretokenizer);
            REQUIRE(count > 0);
            cut.append(text.substr(0, count)).append("|");
            text.remove_prefix(count);
        }
        return cut;
    };
    CHECK(words("I'll say 1234  x\n\n y", Pretokenizer::Gpt2) == "I|'ll| say| 1234| | x|\n\n| y|");
    CHECK(words("I'LL say 1234  x\n\n y", Pretokenizer::Llama3) == "I|'LL| say| |123|4| | x|\n\n| y|");
    CHECK(words("(a) 12!\r\n", Pretokenizer::Qwen2) == "(a|)| |1|2|!\r\n|");
    CHECK(words("\xff\xfe x", Pretokenizer::Gpt2) == "\xff\xfe| x|");
}

#include "model/vocabulary.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "base/error.hpp"
#include "vocabulary_files.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;

TEST_CASE("A SentencePiece vocabulary writes spaces and bytes") {
    const Vocabulary vocabulary = spm_parts().read();
    CHECK(vocabulary.size() == kSpmPieces.size());
    CHECK(vocabulary.bytes_of(3) == std::string_view("\0", 1));
    CHECK(vocabulary.byte_token(0xff) == 258);
    CHECK(vocabulary.bytes_of(*vocabulary.find(" the")) == " the");
    CHECK_FALSE(vocabulary.find("\xe2\x96\x81the"));
    CHECK_FALSE(vocabulary.find("<s>"));
    CHECK(vocabulary.bos() == 1);
    CHECK(vocabulary.unknown() == 0);
    CHECK_FALSE(vocabulary.contains(-1));
    CHECK_FALSE(vocabulary.contains(static_cast<TokenId>(vocabulary.size())));
}

TEST_CASE("A byte-level vocabulary has a token for every byte") {
    const Vocabulary vocabulary = bpe_parts("qwen2").read();
    for (int byte = 0; byte < 256; ++byte) {
        CHECK(vocabulary.byte_token(static_cast<std::uint8_t>(byte)) == byte);
    }
    CHECK_FALSE(vocabulary.bos());
    CHECK_FALSE(vocabulary.adds_bos());
    const auto merge = vocabulary.find_merge(*vocabulary.find("t"), *vocabulary.find("h"));
    REQUIRE(merge);
    CHECK(vocabulary.bytes_of(merge->merged) == "th");
    CHECK_FALSE(vocabulary.find_merge(0, 0));
}

TEST_CASE("A bad vocabulary is refused by key") {
    struct Case {
        const char* what;
        bool is_bpe;
        std::function<void(VocabularyParts&)> change;
        const char* reason;
    };
    const Case cases[] = {
        {"model", false, [](auto& p) { p.model = "t5"; }, "tokenizer.ggml.model: t5; llama and gpt2"},
        {"pre", true, [](auto& p) { p.pre = "deepseek-llm"; }, "tokenizer.ggml.pre: deepseek-llm"},
        {"no tokens", false, [](auto& p) { p.tokens.clear(); }, "missing or empty"},
        {"no scores", false, [](auto& p) { p.scores.clear(); }, "scores: missing"},
        {"score count", false, [](auto& p) { p.scores.pop_back(); }, "429 elements for 430 tokens"},
        {"score NaN", false, [](auto& p) { p.scores[5] = NAN; }, "token 5 is not a number"},
        {"kind count", false, [](auto& p) { p.kinds.push_back(1); }, "431 elements for 430 tokens"},
        {"kind", false, [](auto& p) { p.kinds[9] = 7; }, "token 9 is of type 7"},
        {"kind -1", false, [](auto& p) { p.kinds[9] = -1; }, "token 9 is of type 4294967295"},
        {"byte token", false, [](auto& p) { p.tokens[4] = "<0xGG>"; }, "byte token 4 is <0xGG>"},
        {"byte missing", false, [](auto& p) { p.kinds[4] = 5; }, "only 255 of the 256 bytes"},
        {"byte missing in gpt2", true, [](auto& p) { p.tokens[65] = "xyzzy"; }, "only 255 of the 256 bytes"},
        {"no merges", true, [](auto& p) { p.merges.clear(); }, "merges: missing"},
        {"merge of nothing", true, [](auto& p) { p.merges[3] = "qq zz"; }, "merge 3 (qq zz)"},
        {"merge without a space", true, [](auto& p) { p.merges[3] = "th"; }, "merge 3 (th)"},
        {"empty merge", true, [](auto& p) { p.merges[3] = ""; }, "merge 3 ()"},
        {"bos", false,
         [](auto& p) {
             p.ids = {{"bos_token_id", 430}};
         },
         "bos_token_id: not an id below 430"},
        {"token too long", false, [](auto& p) { p.tokens[300] = std::string(65537, 'x'); },
         "token 300 has 65537 bytes"},
    };
    for (const Case& one : cases) {
        VocabularyParts parts = one.is_bpe ? bpe_parts("default") : spm_parts();
        one.change(parts);
        INFO(one.what);
        CHECK_THROWS_WITH(parts.read(), Catch::Contains(one.reason));
    }
    VocabularyParts without_bytes;
    without_bytes.tokens = {"a", "b"};
    without_bytes.scores = {0, 0};
    without_bytes.ids = {{"unknown_token_id", 0xffffffffU}};
    CHECK_THROWS_WITH(without_bytes.read(), Catch::Contains("there are no byte tokens"));
}

TEST_CASE("The digest is that of the documented bytes") {
    VocabularyParts parts;
    parts.tokens = {"<unk>", "<s>", "\xe2\x96\x81y"};
    parts.scores = {0, 0, -1};
    parts.kinds = {2, 3, 1};
    parts.ids = {{"eos_token_id", 0xffffffffU}};
    // hashlib.sha256 over struct.pack of: title, 1, bos 1, no eos, add bos 1, add eos 0, 3, then length and bytes each.
    CHECK(to_hex(parts.read().digest()) == "bbae257c6a4da4e9339fd2b6e1ee6a9d8ecaff47de4a965505a34850dca27dcf");
}

TEST_CASE("The digest and the first difference tell the same") {
    const Vocabulary base = spm_parts().read();
    CHECK_FALSE(first_difference(base, spm_parts().read()));
    CHECK(base.digest() == spm_parts().read().digest());
    struct Case {
        const char* what;
        std::function<void(VocabularyParts&)> change;
        std::optional<TokenId> id;
        const char* text;
    };
    const Case cases[] = {
        {"a token", [](auto& p) { p.tokens[400] += "x"; }, 400, "token 400: "},
        {"one more", [](auto& p) { p.add("new", 1); }, 430, "token 430: no such id and \"new\""},
        {"bos",
         [](auto& p) {
             p.ids = {{"bos_token_id", 2}};
         },
         std::nullopt, "first token: 1 and 2"},
        {"eos",
         [](auto& p) {
             p.ids = {{"eos_token_id", 0xffffffffU}};
         },
         std::nullopt, "last token: 2 and none"},
        {"add bos", [](auto& p) { p.flags.clear(); }, std::nullopt, "first token is added: no and yes"},
        {"add eos",
         [](auto& p) {
             p.flags.push_back({"add_eos_token", true});
         },
         std::nullopt, "last token is added: no and yes"},
    };
    for (const Case& one : cases) {
        VocabularyParts parts = spm_parts();
        one.change(parts);
        const Vocabulary other = parts.read();
        const auto difference = first_difference(base, other);
        INFO(one.what);
        REQUIRE(difference);
        CHECK(difference->id == one.id);
        CHECK_THAT(difference->text, Catch::StartsWith(one.text));
        CHECK(base.digest() != other.digest());
    }
    const auto kinds = first_difference(base, bpe_parts("default").read());
    REQUIRE(kinds);
    CHECK(kinds->text == "tokenizer type: llama and gpt2");
}

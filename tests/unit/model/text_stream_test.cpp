#include "model/text_stream.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "model/tokenizer.hpp"
#include "model/utf8.hpp"
#include "vocabulary_files.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;

namespace {

/// The pieces of `bytes`, each a token of its own, joined with "|"; the last is what finish() gives.
std::string pieces(std::string_view bytes) {
    const Vocabulary vocabulary = bpe_parts("default").read();
    TextStream stream(vocabulary);
    std::string joined;
    for (const char byte : bytes) {
        joined += stream.push(*vocabulary.byte_token(static_cast<std::uint8_t>(byte))) + "|";
    }
    return joined + stream.finish();
}

constexpr const char* kReplacement = "\xef\xbf\xbd";

}  // namespace

TEST_CASE("Half a character is held back until it is whole") {
    CHECK(pieces("a\xc3\xa9") == "a||\xc3\xa9|");
    CHECK(pieces("\xf0\x9f\x98\x80z") == "|||\xf0\x9f\x98\x80|z|");
}

TEST_CASE("Bytes that are no character become U+FFFD as soon as that is sure") {
    const std::string bad = kReplacement;
    CHECK(pieces("\xff") == bad + "|");
    CHECK(pieces("\xc3z") == "|" + bad + "z|");
    CHECK(pieces("\xe4\xb8z") == "||" + bad + "z|");
    CHECK(pieces("\xed\xa0\x80") == "|" + bad + bad + "|" + bad + "|");  // a surrogate
    CHECK(pieces("\xc0\xaf") == bad + "|" + bad + "|");                  // overlong
    CHECK(pieces("\xf4\x90\x80\x80") == "|" + bad + bad + "|" + bad + "|" + bad + "|");
    CHECK(pieces("a\xe4\xb8") == "a|||" + bad);
}

TEST_CASE("Pieces of any text are UTF-8 and join to it") {
    const Tokenizer tokenizer(spm_parts().read());
    for (const TokenizerCase& one : kSpmCases) {
        TextStream stream(tokenizer.vocabulary());
        std::string joined;
        for (const TokenId id : one.ids) {
            const std::string piece = stream.push(id);
            REQUIRE(is_utf8(piece));
            joined += piece;
        }
        CHECK(joined + stream.finish() == one.text);
    }
}

TEST_CASE("The first space is the tokenizer's, unless the text goes on") {
    const Tokenizer tokenizer(spm_parts().read());
    const TokenId word = *tokenizer.vocabulary().find(" the");
    TextStream start(tokenizer.vocabulary());
    CHECK(start.push(word) == "the");
    CHECK(start.push(word) == " the");
    CHECK(start.finish().empty());
    CHECK(start.push(word) == "the");
    TextStream more(tokenizer.vocabulary(), {false, true});
    CHECK(more.push(word) == " the");
}

TEST_CASE("Control tokens write nothing unless asked, unknown ids are refused") {
    const Vocabulary vocabulary = spm_parts().read();
    TextStream stream(vocabulary);
    CHECK(stream.push(2).empty());
    TextStream showing(vocabulary, {true, false});
    CHECK(showing.push(2) == "</s>");
    CHECK_THROWS_AS(stream.push(-1), Error);
    CHECK_THROWS_AS(stream.push(static_cast<TokenId>(vocabulary.size())), Error);
}

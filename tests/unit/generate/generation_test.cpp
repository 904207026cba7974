#include "generate/generation.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "../../support/scripted_drafter.hpp"
#include "../../support/tiny_decoder.hpp"
#include "../model/vocabulary_files.hpp"
#include "base/error.hpp"
#include "generate/lookup_drafter.hpp"
#include "generate/prompt.hpp"
#include "model/utf8.hpp"

namespace perceptd::generate {
namespace {

using support::TinyDecoder;

constexpr std::uint32_t kVocabulary = 320;
constexpr std::uint32_t kFirstMark = 300;

/// Byte-level, with control tokens <|0|>, <|1|>, .. from id 300 on.
model::Vocabulary vocabulary() {
    model::test::VocabularyParts parts = model::test::bpe_parts("default");
    parts.tokens.resize(256);
    parts.merges.clear();
    parts.merges.emplace_back("a b");
    parts.tokens.emplace_back("ab");
    parts.kinds.assign(parts.tokens.size(), 1);
    while (parts.tokens.size() < kFirstMark) {
        parts.add("word" + std::to_string(parts.tokens.size()), 1);
    }
    while (parts.tokens.size() < kVocabulary) {
        parts.add("<|" + std::to_string(parts.tokens.size() - kFirstMark) + "|>", 3);
    }
    return parts.read();
}

struct Answer {
    std::vector<std::uint32_t> tokens;
    std::string text;
    FinishReason finish = FinishReason::None;
    SpeculationCounts counts;
    std::vector<HeadroomLevel> levels;
};

Answer answer(TinyDecoder& target, const model::Vocabulary& words, Drafter& drafter, const GenerationOptions& options,
              const std::vector<std::uint32_t>& prompt, std::size_t capacity = 400, const DepthOptions& depths = {}) {
    Depth depth(depths);
    Generation generation(
        words, DecoderSequence(target.runtime(), target.cache().open(1, capacity), TinyDecoder::kBatchTokens), drafter,
        depth, options, prompt);
    Answer found;
    while (generation.finish() == FinishReason::None) {
        const Piece piece = generation.step();
        REQUIRE(piece.first_number == found.tokens.size());
        REQUIRE(model::is_utf8(piece.text));
        found.tokens.insert(found.tokens.end(), piece.tokens.begin(), piece.tokens.end());
        found.text += piece.text;
        if (piece.headroom_reached) {
            found.levels.push_back(*piece.headroom_reached);
        }
    }
    found.finish = generation.finish();
    found.counts = generation.counts();
    REQUIRE(generation.token_count() == found.tokens.size());
    REQUIRE(std::equal(found.tokens.begin(), found.tokens.end(),
                       generation.context().begin() + static_cast<long>(prompt.size())));
    const Piece after = generation.step();
    REQUIRE((after.tokens.empty() && after.text.empty() && after.finish == found.finish));
    return found;
}

/// Control tokens forbidden, so that only the length ends it.
GenerationOptions endless(std::uint64_t seed, std::size_t tokens) {
    GenerationOptions options{.sampling = {.seed = seed, .temperature = 0.9F}, .tokens_max = tokens};
    for (std::uint32_t mark = kFirstMark; mark < kVocabulary; ++mark) {
        options.sampling.biases.push_back({mark, -INFINITY});
    }
    return options;
}

}  // namespace

TEST_CASE("an answer ends at any control token, which is counted and not written") {
    TinyDecoder target;
    const model::Vocabulary words = vocabulary();
    support::SilentDrafter silent;
    LookupDrafter lookup;
    int stopped = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        const GenerationOptions options{.sampling = {.seed = seed, .temperature = 0.9F}, .tokens_max = 40};
        const Answer plain = answer(target, words, silent, options, {1, 2, 3}, 400, {.fixed = 0});
        const auto mark =
            std::find_if(plain.tokens.begin(), plain.tokens.end(), [](auto id) { return id >= kFirstMark; });
        if (plain.finish == FinishReason::StopToken) {
            ++stopped;
            CHECK(mark == plain.tokens.end() - 1);
        } else {
            CHECK(plain.finish == FinishReason::TokensMax);
            CHECK(plain.tokens.size() == 40);
            CHECK(mark == plain.tokens.end());
        }
        CHECK(plain.text.find("<|") == std::string::npos);
        // A draft that runs past the end changes nothing.
        std::vector<std::uint32_t> script{1, 2, 3};
        script.insert(script.end(), plain.tokens.begin(), plain.tokens.end());
        support::ScriptedDrafter right(script, kVocabulary, 1);
        const Answer drafted = answer(target, words, right, options, {1, 2, 3}, 400, {.fixed = 16});
        CHECK(drafted.tokens == plain.tokens);
        CHECK(drafted.text == plain.text);
        CHECK(drafted.finish == plain.finish);
        CHECK(answer(target, words, lookup, options, {1, 2, 3}).text == plain.text);
    }
    CHECK(stopped > 20);
    CHECK(stopped < 100);
}

TEST_CASE("text comes in whole characters, and together it is the tokens' text") {
    TinyDecoder target;
    const model::Vocabulary words = vocabulary();
    support::SilentDrafter silent;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        const Answer found = answer(target, words, silent, endless(seed, 50), {5, 6});
        model::TextStream stream(words);
        std::string wanted;
        for (const std::uint32_t token : found.tokens) {
            wanted += stream.push(static_cast<model::TokenId>(token));
        }
        CHECK(found.text == wanted + stream.finish());
    }
}

TEST_CASE("a stop string ends the answer wherever it lies, for every draft") {
    TinyDecoder target;
    const model::Vocabulary words = vocabulary();
    support::SilentDrafter silent;
    LookupDrafter lookup;
    int checked = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        GenerationOptions options = endless(seed, 40);
        const std::string whole = answer(target, words, silent, options, {9}).text;
        // Three characters from the middle, over token borders.
        std::size_t begin = whole.size() / 2;
        while (begin < whole.size() && (whole[begin] & 0xC0) == 0x80) {
            ++begin;
        }
        std::size_t end = std::min(begin + 6, whole.size());
        while (end < whole.size() && (whole[end] & 0xC0) == 0x80) {
            ++end;
        }
        options.stops = {"never in it", whole.substr(begin, end - begin)};
        const Answer plain = answer(target, words, silent, options, {9});
        CHECK(plain.finish == FinishReason::StopString);
        CHECK(plain.text == whole.substr(0, whole.find(options.stops[1])));
        const Answer drafted = answer(target, words, lookup, options, {9});
        CHECK(drafted.text == plain.text);
        CHECK(drafted.tokens == plain.tokens);
        ++checked;
    }
    CHECK(checked == 40);
}

TEST_CASE("stop strings: held back only while they may come, the first place wins") {
    const auto pieces = [](std::vector<std::string> stops, std::vector<std::string> texts) {
        StopStrings watch(std::move(stops));
        std::string joined;
        for (const std::string& text : texts) {
            joined += watch.push(text) + "|";
        }
        return joined + watch.finish() + (watch.is_found() ? "!" : "");
    };
    CHECK(pieces({}, {"a", "b"}) == "a|b|");
    CHECK(pieces({"END"}, {"xE", "N", "Dy"}) == "x|||!");
    CHECK(pieces({"END"}, {"xE", "N", "Ey"}) == "x||ENEy|");
    CHECK(pieces({"END"}, {"xEN"}) == "x|EN");
    CHECK(pieces({"aab"}, {"aa", "aa", "b"}) == "|aa||!");
    CHECK(pieces({"world", "lo w"}, {"hello w", "orld"}) == "hel||!");
    CHECK(pieces({"b", "abc"}, {"xa", "bc"}) == "x||!");
    CHECK_THROWS_AS(StopStrings({""}), Error);
    CHECK_THROWS_AS(StopStrings({std::string(257, 'x')}), Error);
    CHECK_THROWS_AS(StopStrings({"\xff"}), Error);
    CHECK_THROWS_AS(StopStrings(std::vector<std::string>(17, "x")), Error);
}

TEST_CASE("cancelling ends it before the next pass; what was given stays") {
    TinyDecoder target;
    const model::Vocabulary words = vocabulary();
    support::SilentDrafter silent;
    const GenerationOptions options = endless(1, 100);
    const Answer whole = answer(target, words, silent, options, {1});
    Depth depth;
    Generation generation(words,
                          DecoderSequence(target.runtime(), target.cache().open(1, 200), TinyDecoder::kBatchTokens),
                          silent, depth, options, std::vector<std::uint32_t>{1});
    for (int i = 0; i < 10; ++i) {
        CHECK(generation.step().tokens.size() == 1);
    }
    std::thread([&] { generation.cancel(); }).join();
    const Piece last = generation.step();
    CHECK(last.finish == FinishReason::Cancelled);
    CHECK(last.tokens.empty());
    CHECK(generation.token_count() == 10);
    CHECK(generation.status() == Status::Ok);
    CHECK(std::equal(whole.tokens.begin(), whole.tokens.begin() + 10, generation.context().begin() + 1));
}

TEST_CASE("what does not fit is refused with the exact numbers, and what fits tells how full it is") {
    TinyDecoder target;
    const model::Vocabulary words = vocabulary();
    support::SilentDrafter silent;
    const std::vector<std::uint32_t> prompt(50, 7);
    try {
        (void)answer(target, words, silent, endless(1, 51), prompt, 100);
        FAIL("began");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::QuotaExceeded);
        CHECK(error.limit == 100U);
        CHECK(error.used == 101U);
    }
    const Answer found = answer(target, words, silent, endless(1, 50), prompt, 100);
    CHECK(found.tokens.size() == 50);
    CHECK(found.levels == std::vector{HeadroomLevel::Soft, HeadroomLevel::Hard});
    CHECK_THROWS_AS(answer(target, words, silent, endless(1, 0), prompt, 100), Error);
}

TEST_CASE("the template's marks are read, the user's are not") {
    const model::Tokenizer tokenizer(vocabulary());
    const auto ids = encode_prompt(tokenizer, "<|0|>{prompt}<|1|>", "a<|1|>");
    REQUIRE(ids.size() == 8);
    CHECK(ids.front() == kFirstMark);
    CHECK(ids.back() == kFirstMark + 1);
    CHECK(std::count_if(ids.begin(), ids.end(), [](auto id) { return id >= kFirstMark; }) == 2);
    CHECK(encode_prompt(tokenizer, "{prompt}", "ab") == std::vector<std::uint32_t>{256});
    CHECK_THROWS_AS(encode_prompt(tokenizer, "no mark", "a"), Error);
}

}  // namespace perceptd::generate

#include <algorithm>
#include <catch2/catch.hpp>

#include "generate/lookup_drafter.hpp"
#include "generate/suffix_drafter.hpp"
#include "sensor/counter_rng.hpp"

namespace perceptd::generate {
namespace {

using Tokens = std::vector<std::uint32_t>;

Tokens drafted(Drafter& drafter, const Tokens& context, std::size_t count = 4) {
    Tokens guesses(count);
    guesses.resize(drafter.draft(context, guesses));
    return guesses;
}

Tokens noise(std::uint64_t seed, std::size_t count, std::uint32_t alphabet) {
    Tokens tokens(count);
    for (std::size_t i = 0; i < count; ++i) {
        tokens[i] = static_cast<std::uint32_t>(sensor::random_bits(seed, 0, i) % alphabet);
    }
    return tokens;
}

/// The longest end of `text` that stands earlier in it, by comparing everywhere.
std::size_t longest_earlier_end(const Tokens& text) {
    std::size_t longest = 0;
    for (std::size_t end = 1; end < text.size(); ++end) {
        std::size_t length = 0;
        while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) {
            ++length;
        }
        longest = std::max(longest, length);
    }
    return longest;
}

bool stands_before_end(const Tokens& text, const Tokens& piece) {
    return std::search(text.begin(), text.end() - 1, piece.begin(), piece.end()) != text.end() - 1;
}

}  // namespace

TEST_CASE("prompt lookup copies what followed the longest repeated end, the newest place first") {
    LookupDrafter drafter;
    drafter.begin(100);
    CHECK(drafted(drafter, {1, 2, 3, 4, 5, 6, 7, 8, 2, 3}) == Tokens{4, 5, 6, 7});
    drafter.begin(100);
    CHECK(drafted(drafter, {1, 2, 3, 9, 2, 3, 5, 7, 2, 3}, 2) == Tokens{5, 7});
    drafter.begin(100);
    CHECK(drafted(drafter, {1, 2, 3, 9, 2, 3, 5, 7, 1, 2, 3}, 1) == Tokens{9});  // three tokens beat two
    drafter.begin(100);
    CHECK(drafted(drafter, {1, 2, 1, 2}) == Tokens{1, 2, 1, 2});  // a repetition repeats
    drafter.begin(100);
    CHECK(drafted(drafter, {1, 2, 3, 4, 3}).empty());  // one token is no match
    CHECK(drafted(drafter, {1}).empty());
}

TEST_CASE("prompt lookup finds what it finds however the context grows, and nothing of an earlier text") {
    const Tokens text = noise(1, 400, 3);
    LookupDrafter growing;
    growing.begin(400);
    for (std::size_t n = 1; n <= text.size(); ++n) {
        const Tokens context(text.begin(), text.begin() + static_cast<long>(n));
        LookupDrafter fresh;
        fresh.begin(400);
        REQUIRE(drafted(growing, context) == drafted(fresh, context));
    }
    growing.begin(400);
    CHECK(drafted(growing, {0, 1, 2, 0}).empty());
}

TEST_CASE("the suffix automaton finds the longest repeated end at every length of the text") {
    for (const std::uint32_t alphabet : {2U, 3U, 10U, 300U}) {
        const Tokens text = noise(alphabet, 300, alphabet);
        SuffixDrafter drafter(1000);
        drafter.begin(300);
        for (std::size_t n = 1; n <= text.size(); ++n) {
            const Tokens context(text.begin(), text.begin() + static_cast<long>(n));
            const Tokens guess = drafted(drafter, context, 1);
            const std::size_t longest = longest_earlier_end(context);
            CAPTURE(alphabet, n);
            REQUIRE(drafter.match_tokens() == longest);
            REQUIRE(guess.empty() == (longest < 2));
            if (!guess.empty()) {
                // The guess followed the repeated end somewhere earlier.
                Tokens piece(context.end() - static_cast<long>(longest), context.end());
                piece.push_back(guess[0]);
                Tokens searched = context;
                searched.push_back(guess[0]);
                REQUIRE(stands_before_end(searched, piece));
            }
        }
    }
}

TEST_CASE("the session's suffixes remember earlier turns, and a continued text is not fed twice") {
    SuffixDrafter drafter(1000);
    const Tokens first = noise(1, 50, 1000);
    drafter.begin(100);
    (void)drafted(drafter, first);
    CHECK(drafter.remembered_tokens() == 50);
    Tokens second = first;
    second.push_back(5000);
    drafter.begin(100);
    (void)drafted(drafter, second);
    CHECK(drafter.remembered_tokens() == 51);
    drafter.begin(100);
    const Tokens other{7000, first[10], first[11], first[12]};
    CHECK(drafted(drafter, other) == Tokens(first.begin() + 13, first.begin() + 17));
    CHECK(drafter.remembered_tokens() == 55);
}

TEST_CASE("a full session forgets its older half and goes on") {
    SuffixDrafter drafter(200);
    for (std::uint64_t turn = 0; turn < 20; ++turn) {
        const Tokens text = noise(turn, 60, 100000);
        drafter.begin(70);
        (void)drafted(drafter, text);
        REQUIRE(drafter.remembered_tokens() <= 200);
        drafter.begin(70);
        CHECK(drafted(drafter, {1, text[20], text[21]}, 2) == Tokens{text[22], text[23]});
    }
}

}  // namespace perceptd::generate

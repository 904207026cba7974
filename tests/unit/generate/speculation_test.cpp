#include "generate/speculation.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include "../../support/scripted_drafter.hpp"
#include "../../support/tiny_decoder.hpp"
#include "base/error.hpp"
#include "base/hot_path.hpp"
#include "generate/lookup_drafter.hpp"
#include "generate/model_drafter.hpp"
#include "generate/suffix_drafter.hpp"
#include "model/gguf.hpp"

namespace perceptd::generate {
namespace {

using support::TinyDecoder;
using Tokens = std::vector<std::uint32_t>;

constexpr std::uint32_t kVocabulary = 320;

Tokens some_prompt(std::uint64_t seed) {
    Tokens prompt(1 + sensor::random_bits(seed, 7, 0) % 50);
    for (std::size_t i = 0; i < prompt.size(); ++i) {
        prompt[i] = static_cast<std::uint32_t>(sensor::random_bits(seed, 8, i % 17) % kVocabulary);
    }
    return prompt;
}

struct Run {
    Tokens text;  // prompt and answer
    SpeculationCounts counts;
};

Run run(TinyDecoder& target, const SamplerOptions& sampling, Drafter& drafter, const DepthOptions& depth_options,
        const Tokens& prompt, std::size_t tokens, KvClient client = 1) {
    Depth depth(depth_options);
    Speculation speculation(DecoderSequence(target.runtime(), target.cache().open(client, prompt.size() + tokens + 20),
                                            TinyDecoder::kBatchTokens),
                            sampling, drafter, depth, prompt);
    while (speculation.context().size() < prompt.size() + tokens) {
        REQUIRE(speculation.step(prompt.size() + tokens - speculation.context().size()) == Status::Ok);
    }
    const auto context = speculation.context();
    return {{context.begin(), context.end()}, speculation.counts()};
}

SamplerOptions sampling_of(std::uint64_t seed, float temperature) {
    return {
        .seed = seed, .temperature = temperature, .top_p = 0.95F, .repetition_penalty = seed % 3 == 0 ? 1.2F : 1.0F};
}

}  // namespace

TEST_CASE("the text is the same for every draft, every depth and every temperature") {
    TinyDecoder target;
    TinyDecoder draft(support::tiny_options(model::Encoding::Q4_0));
    support::SilentDrafter silent;
    SuffixDrafter suffix;  // over all prompts, as in a session
    std::uint64_t accepted_by_draft = 0;
    std::uint64_t combination = 0;
    for (std::uint64_t prompt_index = 0; prompt_index < 300; ++prompt_index) {
        const Tokens prompt = some_prompt(prompt_index);
        const SamplerOptions sampling = sampling_of(prompt_index, prompt_index % 2 == 0 ? 0.0F : 0.8F);
        const Tokens wanted = run(target, sampling, silent, {.fixed = 0}, prompt, 24, prompt_index).text;
        // 17 depths and the automatic one, 7 drafters: 300 prompts x 9 go through all of them 20 times.
        for (int n = 0; n < 9; ++n, ++combination) {
            const std::uint32_t depth = static_cast<std::uint32_t>(combination / 7 % 18);
            LookupDrafter lookup;
            ModelDrafter model(draft.runtime(), draft.cache(), prompt_index, sampling, {.batch_tokens_max = 20});
            support::ScriptedDrafter wrong(wanted, kVocabulary, 0);
            support::ScriptedDrafter mixed(wanted, kVocabulary, 0.7);
            support::WildDrafter wild(kVocabulary);
            Drafter* const drafters[] = {&silent, &lookup, &suffix, &model, &wrong, &mixed, &wild};
            const DepthOptions options{.fixed = depth == 17 ? std::nullopt : std::optional(depth)};
            // Another client now and then: then nothing of the cache is reused.
            const KvClient client = n % 4 == 0 ? 1000 : prompt_index;
            const Run found = run(target, sampling, *drafters[combination % 7], options, prompt, 24, client);
            CAPTURE(prompt_index, depth, combination % 7);
            REQUIRE(found.text == wanted);
            accepted_by_draft += combination % 7 == 3 ? found.counts.accepted : 0;
        }
    }
    CHECK(accepted_by_draft > 1000);
    CHECK(target.cache().usage().reused_tokens > 1000);
}

TEST_CASE("a draft that is always right costs one pass per depth + 1 tokens, one that is always wrong one per token") {
    TinyDecoder target;
    support::SilentDrafter silent;
    const Tokens prompt = some_prompt(4);
    const Run plain = run(target, {}, silent, {.fixed = 0}, prompt, 60);
    CHECK(plain.counts.passes == 60);
    support::ScriptedDrafter right(plain.text, kVocabulary, 1);
    const Run fast = run(target, {}, right, {.fixed = 4}, prompt, 60);
    CHECK(fast.counts.passes == 12);
    CHECK(fast.counts.accepted == fast.counts.drafted);
    CHECK(fast.counts.tokens_per_pass() == 5);
    support::ScriptedDrafter wrong(plain.text, kVocabulary, 0);
    const Run slow = run(target, {}, wrong, {.fixed = 4}, prompt, 60);
    CHECK(slow.counts.passes == 60);
    CHECK(slow.counts.accepted == 0);
}

TEST_CASE("tokens per pass are those of the closed form") {
    TinyDecoder target;
    support::SilentDrafter silent;
    double tokens = 0;
    double passes = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {
        const Tokens prompt = some_prompt(i);
        const Run plain = run(target, sampling_of(i, 0.8F), silent, {.fixed = 0}, prompt, 100);
        support::ScriptedDrafter mixed(plain.text, kVocabulary, 0.8, i);
        const Run found = run(target, sampling_of(i, 0.8F), mixed, {.fixed = 4}, prompt, 100);
        // The last passes may not draft as far as they would.
        tokens += static_cast<double>(found.counts.tokens);
        passes += static_cast<double>(found.counts.passes);
    }
    CHECK(tokens / passes == Approx((1 - std::pow(0.8, 5)) / (1 - 0.8)).epsilon(0.05));
}

TEST_CASE("texts of three tokens have the product distribution of the model") {
    // A vocabulary of 5: 125 texts, whose probabilities another implementation gives in double from the stored weights.
    auto options = support::tiny_options(model::Encoding::F16, 3);
    options.vocabulary_size = 5;
    options.width = 32;
    options.head_count = 1;
    options.feed_forward_width = 32;
    TinyDecoder target(options);
    options.seed = 4;
    TinyDecoder draft(options);  // another model: the draft is often wrong
    const auto bytes = support::random_decoder([&] {
        auto same = options;
        same.seed = 3;
        return same;
    }());
    const model::Gguf file = model::Gguf::parse(bytes, "random");
    const model::Decoder decoder = model::read_decoder(file);
    const Tokens prompt{1, 4, 2};
    const auto probabilities = [&](const Tokens& text) {
        std::vector<double> weights = support::reference_logits(decoder, text);
        double sum = 0;
        for (double& weight : weights) {
            weight = std::exp(weight);
            sum += weight;
        }
        for (double& weight : weights) {
            weight /= sum;
        }
        return weights;
    };
    std::vector<double> wanted;
    for (std::uint32_t text = 0; text < 125; ++text) {
        Tokens tokens = prompt;
        double probability = 1;
        for (const std::uint32_t token : {text / 25, text / 5 % 5, text % 5}) {
            probability *= probabilities(tokens)[token];
            tokens.push_back(token);
        }
        wanted.push_back(probability);
    }
    constexpr std::uint64_t kCount = 20000;
    std::vector<double> counts(125);
    for (std::uint64_t seed = 0; seed < kCount; ++seed) {
        const SamplerOptions sampling{.seed = seed, .temperature = 1};
        ModelDrafter drafter(draft.runtime(), draft.cache(), 1, sampling, {.batch_tokens_max = 20});
        const Tokens text = run(target, sampling, drafter, {.fixed = 2}, prompt, 3).text;
        ++counts[text[3] * 25 + text[4] * 5 + text[5]];
    }
    double chi_square = 0;
    for (std::size_t i = 0; i < 125; ++i) {
        chi_square += (counts[i] - kCount * wanted[i]) * (counts[i] - kCount * wanted[i]) / (kCount * wanted[i]);
    }
    CHECK(chi_square < 175.5);  // 124 degrees of freedom, p = 0.0016
}

TEST_CASE("a long prompt is read in parts, and one that was read before is not read again") {
    TinyDecoder target;
    support::SilentDrafter silent;
    Tokens prompt(100, 3);
    for (std::uint32_t i = 0; i < 100; ++i) {
        prompt[i] = i * 3 % kVocabulary;
    }
    const Run first = run(target, {}, silent, {.fixed = 0}, prompt, 10);
    CHECK(first.counts.prompt_passes == 3);  // 32 tokens each; the last 4 go with the first answer
    const Run again = run(target, {}, silent, {.fixed = 0}, prompt, 10);
    CHECK(again.counts.prompt_passes == 0);
    CHECK(again.text == first.text);
    // The next turn continues the whole text.
    Tokens longer = first.text;
    longer.insert(longer.end(), {9, 8, 7});
    CHECK(run(target, {}, silent, {.fixed = 0}, longer, 10).text ==
          run(target, {}, silent, {.fixed = 0}, longer, 10, 77).text);
}

TEST_CASE("the end of the sequence is told, and the text up to it does not depend on the draft") {
    TinyDecoder target;
    support::SilentDrafter silent;
    const Tokens prompt = some_prompt(3);
    const std::size_t capacity = prompt.size() + 11;
    Tokens wanted;
    for (const std::uint32_t fixed : {0U, 16U, 5U}) {
        Depth depth({.fixed = fixed});
        support::ScriptedDrafter mixed(wanted, kVocabulary, 0.9);
        Drafter& drafter = fixed == 0 ? static_cast<Drafter&>(silent) : mixed;
        Speculation speculation(
            DecoderSequence(target.runtime(), target.cache().open(1, capacity), TinyDecoder::kBatchTokens), {}, drafter,
            depth, prompt);
        Status status = Status::Ok;
        while (status == Status::Ok) {
            status = speculation.step(100);
        }
        CHECK(status == Status::Full);
        CHECK(speculation.headroom().remaining_tokens() == 0U);
        const auto context = speculation.context();
        const Tokens text(context.begin(), context.end());
        CHECK(text.size() == capacity + 1);  // the last token needs no place of its own
        CHECK((fixed == 0 || text == wanted));
        wanted = text;
    }
}

TEST_CASE("a prompt that cannot be continued is refused with numbers") {
    TinyDecoder target;
    support::SilentDrafter silent;
    Depth depth;
    const auto begin = [&](const Tokens& prompt) {
        Speculation speculation(
            DecoderSequence(target.runtime(), target.cache().open(1, 40), TinyDecoder::kBatchTokens), {}, silent, depth,
            prompt);
    };
    CHECK_THROWS_AS(begin({}), Error);
    CHECK_THROWS_AS(begin({kVocabulary}), Error);
    try {
        begin(Tokens(41, 1));
        FAIL("began");
    } catch (const Error& error) {
        CHECK(error.limit == 40U);
        CHECK(error.used == 41U);
    }
    CHECK_THROWS_AS(Depth({.fixed = 17}), Error);
}

TEST_CASE("beyond its context the draft model gives nothing, and the text goes on") {
    TinyDecoder target;
    TinyDecoder draft(support::tiny_options(model::Encoding::Q4_0));
    support::SilentDrafter silent;
    const Tokens prompt = some_prompt(5);
    const Tokens wanted = run(target, {}, silent, {.fixed = 0}, prompt, 60).text;
    ModelDrafter drafter(draft.runtime(), draft.cache(), 1, {},
                         {.context_tokens_max = prompt.size() + 30, .batch_tokens_max = 20});
    const Run found = run(target, {}, drafter, {.fixed = 4}, prompt, 60);
    CHECK(found.text == wanted);
    CHECK(drafter.beyond_context_count() > 0);
    CHECK(drafter.failed_count() == 0);
    CHECK(found.counts.drafted > 20);
}

TEST_CASE("cutting the text forgets it in the cache too") {
    TinyDecoder target;
    support::SilentDrafter silent;
    const Tokens prompt{1, 2, 3};
    const Tokens wanted = run(target, {}, silent, {.fixed = 0}, prompt, 20).text;
    Depth depth({.fixed = 8});
    support::ScriptedDrafter right(wanted, kVocabulary, 1);
    Speculation speculation(DecoderSequence(target.runtime(), target.cache().open(9, 200), TinyDecoder::kBatchTokens),
                            {}, right, depth, prompt);
    REQUIRE(speculation.step(20) == Status::Ok);
    REQUIRE(speculation.newest().size() == 9);
    speculation.cut(prompt.size() + 3);
    CHECK(speculation.newest().size() == 3);
    while (speculation.context().size() < wanted.size()) {
        REQUIRE(speculation.step(wanted.size() - speculation.context().size()) == Status::Ok);
    }
    CHECK(std::equal(wanted.begin(), wanted.end(), speculation.context().begin(), speculation.context().end()));
}

TEST_CASE("a pass with its draft allocates nothing") {
    TinyDecoder target;
    TinyDecoder draft(support::tiny_options(model::Encoding::Q4_0));
    const SamplerOptions sampling = sampling_of(3, 0.8F);
    LookupDrafter lookup;
    SuffixDrafter suffix;
    ModelDrafter model(draft.runtime(), draft.cache(), 1, sampling, {.batch_tokens_max = 20});
    for (Drafter* drafter :
         {static_cast<Drafter*>(&lookup), static_cast<Drafter*>(&suffix), static_cast<Drafter*>(&model)}) {
        Depth depth({.fixed = 4});
        Speculation speculation(
            DecoderSequence(target.runtime(), target.cache().open(1, 200), TinyDecoder::kBatchTokens), sampling,
            *drafter, depth, some_prompt(2));
        const hot_path::Scope hot;
        const std::uint64_t before = hot_path::allocation_count();
        for (int i = 0; i < 20; ++i) {
            if (speculation.step(100) != Status::Ok) {
                FAIL("a pass failed");
            }
        }
        CHECK(hot_path::allocation_count() == before);
    }
}

}  // namespace perceptd::generate

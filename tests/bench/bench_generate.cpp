// Whether speculation is invisible in the text, and what it gains in time.
// Usage: bench_generate [--prompts N] [--answers N] [--temperature T] [--depth K] [--workers N] [MODEL.gguf DRAFT.gguf]
// Progress on stderr; the last line of stdout is one JSON object (keys: tests/bench/README.md).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../support/scripted_drafter.hpp"
#include "../support/tiny_decoder.hpp"
#include "base/clock.hpp"
#include "generate/lookup_drafter.hpp"
#include "generate/model_drafter.hpp"
#include "generate/prompt.hpp"
#include "generate/speculation.hpp"
#include "generate/suffix_drafter.hpp"
#include "generate/text_model.hpp"

namespace {

using namespace perceptd;
using namespace perceptd::generate;
using Tokens = std::vector<std::uint32_t>;

struct Options {
    std::uint64_t prompts = 10000;
    std::uint64_t answers = 120;
    float temperature = 0.8F;
    std::optional<std::uint32_t> depth;
    std::size_t workers = 2;
    std::vector<std::string> files;
};

struct Answer {
    Tokens text;
    SpeculationCounts counts;
    std::int64_t duration_ns = 0;
};

/// Generates up to `tokens` behind `prompt`; `is_end` says which token ends the answer.
template <typename IsEnd>
Answer answer(DecoderSequence sequence, const SamplerOptions& sampling, Drafter& drafter, Depth& depth,
              const Tokens& prompt, std::size_t tokens, IsEnd is_end) {
    Speculation speculation(std::move(sequence), sampling, drafter, depth, prompt);
    const std::int64_t started_at_ns = monotonic_ns();
    bool is_over = false;
    while (!is_over) {
        if (speculation.step(prompt.size() + tokens - speculation.context().size()) != Status::Ok) {
            throw std::runtime_error("a pass failed");
        }
        const auto newest = speculation.newest();
        const auto end = std::find_if(newest.begin(), newest.end(), is_end);
        if (end != newest.end()) {
            is_over = true;
            speculation.cut(static_cast<std::size_t>(&*end - speculation.context().data()) + 1);
        }
        is_over = is_over || speculation.context().size() == prompt.size() + tokens;
    }
    const std::int64_t duration_ns = monotonic_ns() - started_at_ns;
    return {{speculation.context().begin(), speculation.context().end()}, speculation.counts(), duration_ns};
}

constexpr auto kNoEnd = [](std::uint32_t) { return false; };

/// Byte identity on small random decoders, whose texts are cheap: depths 0 to 16 and automatic, six drafters, greedy
/// and sampled.
nlohmann::ordered_json check_identity(const Options& options) {
    constexpr std::uint32_t kVocabulary = 320;
    constexpr std::size_t kTokens = 24;
    support::TinyDecoder target;
    support::TinyDecoder draft(support::tiny_options(model::Encoding::Q4_0));
    support::SilentDrafter silent;
    SuffixDrafter suffix;
    std::uint64_t identical = 0;
    for (std::uint64_t n = 0; n < options.prompts; ++n) {
        Tokens prompt(1 + sensor::random_bits(n, 7, 0) % 40);
        for (std::size_t i = 0; i < prompt.size(); ++i) {
            prompt[i] = static_cast<std::uint32_t>(sensor::random_bits(n, 8, i % 17) % kVocabulary);
        }
        const SamplerOptions sampling{.seed = n, .temperature = n % 2 == 0 ? 0.0F : 0.8F, .top_p = 0.95F};
        const auto open = [&](KvClient client) {
            return DecoderSequence(target.runtime(), target.cache().open(client, prompt.size() + kTokens + 20),
                                   support::TinyDecoder::kBatchTokens);
        };
        Depth none({.fixed = 0});
        const Tokens wanted = answer(open(n), sampling, silent, none, prompt, kTokens, kNoEnd).text;
        const std::uint64_t combination = n / 2;
        const auto fixed = static_cast<std::uint32_t>(combination / 6 % 18);
        Depth depth({.fixed = fixed == 17 ? std::nullopt : std::optional(fixed)});
        LookupDrafter lookup;
        ModelDrafter small(draft.runtime(), draft.cache(), n, sampling, {.batch_tokens_max = 32});
        support::ScriptedDrafter wrong(wanted, kVocabulary, 0);
        support::ScriptedDrafter mixed(wanted, kVocabulary, 0.8, n);
        support::WildDrafter wild(kVocabulary);
        Drafter* const drafters[] = {&lookup, &suffix, &small, &wrong, &mixed, &wild};
        const Tokens found =
            answer(open(n + 1), sampling, *drafters[combination % 6], depth, prompt, kTokens, kNoEnd).text;
        identical += found == wanted ? 1 : 0;
        if ((n + 1) % 2000 == 0) {
            std::fprintf(stderr, "%lu of %lu prompts, %lu identical\n", n + 1, options.prompts, identical);
        }
    }
    return {{"prompts", options.prompts},
            {"identical_fraction",
             static_cast<double>(identical) / static_cast<double>(std::max<std::uint64_t>(options.prompts, 1))}};
}

/// Sums over answers of one way of drafting.
struct Sums {
    SpeculationCounts counts;
    double duration_s = 0;

    void add(const Answer& one) {
        counts.passes += one.counts.passes;
        counts.tokens += one.counts.tokens;
        counts.drafted += one.counts.drafted;
        counts.accepted += one.counts.accepted;
        counts.rejections += one.counts.rejections;
        counts.predicted_tokens += one.counts.predicted_tokens;
        counts.draft_ns += one.counts.draft_ns;
        duration_s += static_cast<double>(one.duration_ns) / static_cast<double>(kNsPerSecond);
    }
    [[nodiscard]] double tokens_s() const { return static_cast<double>(counts.tokens) / duration_s; }
};

/// What answers are made with: a decoder, its cache and what ends an answer.
struct Bed {
    engine::DecoderRuntime& decoder;
    KvCache& cache;
    std::size_t batch_tokens_max;
    std::vector<bool> ends;
    std::vector<Tokens> prompts;
    std::size_t tokens = 64;
};

/// Each answer plain, drafted and with a draft that is always wrong, one after the other: the machine's moods meet all
/// three. Every answer has a client of its own, so that none profits from another's cache.
template <typename MakeDrafter>
nlohmann::ordered_json measure(const Bed& bed, const Options& options, MakeDrafter make_drafter) {
    Sums plain;
    Sums drafted;
    Sums adversarial;
    Depth none({.fixed = 0});
    Depth depth({.fixed = options.depth});
    Depth adversary;
    std::uint64_t identical = 0;
    KvClient client = 1;
    support::SilentDrafter silent;
    const auto is_end = [&](std::uint32_t token) { return token < bed.ends.size() && bed.ends[token]; };
    for (std::uint64_t n = 0; n < options.answers; ++n) {
        const Tokens& prompt = bed.prompts[n % bed.prompts.size()];
        const SamplerOptions sampling{.seed = n, .temperature = options.temperature};
        const auto run = [&](Drafter& drafter, Depth& with) {
            return answer(DecoderSequence(bed.decoder, bed.cache.open(client++, prompt.size() + bed.tokens),
                                          bed.batch_tokens_max),
                          sampling, drafter, with, prompt, bed.tokens, is_end);
        };
        const Answer wanted = run(silent, none);
        support::ScriptedDrafter wrong(wanted.text, bed.decoder.config().vocabulary_size, 0);
        const std::unique_ptr<Drafter> drafter = make_drafter(sampling, wanted.text, client);
        const Answer found = run(*drafter, depth);
        const Answer slowed = run(wrong, adversary);
        plain.add(wanted);
        drafted.add(found);
        adversarial.add(slowed);
        identical += found.text == wanted.text && slowed.text == wanted.text ? 1 : 0;
        if ((n + 1) % 20 == 0) {
            std::fprintf(stderr, "%lu of %lu answers: plain %.1f tokens/s, drafted %.1f, always wrong %.1f\n", n + 1,
                         options.answers, plain.tokens_s(), drafted.tokens_s(), adversarial.tokens_s());
        }
    }
    const auto passes = static_cast<double>(drafted.counts.passes);
    return {{"answers", options.answers},
            {"answers_identical", identical},
            {"temperature", options.temperature},
            {"speedup", plain.duration_s / drafted.duration_s},
            {"acceptance", drafted.counts.acceptance()},
            {"tokens_per_pass", static_cast<double>(drafted.counts.tokens) / passes},
            {"tokens_per_pass_predicted", drafted.counts.predicted_tokens / passes},
            {"drafted_per_pass", static_cast<double>(drafted.counts.drafted) / passes},
            {"draft_time_fraction", static_cast<double>(drafted.counts.draft_ns) / 1e9 / drafted.duration_s},
            {"adversarial_slowdown", adversarial.duration_s / plain.duration_s - 1},
            {"plain_tok_s", plain.tokens_s()},
            {"drafted_tok_s", drafted.tokens_s()}};
}

/// A trained pair: booking dialogues in the manner of <|user|>..<|assistant|>.
nlohmann::ordered_json measure_pair(const Options& options, engine::WorkerTeam& team) {
    TextModel target(options.files[0], team, {.context_tokens_max = 1024});
    TextModel draft(options.files[1], team, {.context_tokens_max = 1024});
    require_same_vocabulary(target, draft);
    const model::Vocabulary& words = target.tokenizer().vocabulary();
    Bed bed{target.decoder(), target.cache(), target.batch_tokens_max(), {}, {}};
    for (model::TokenId id = 0; words.contains(id); ++id) {
        bed.ends.push_back(words.kind_of(id) == model::TokenKind::Control);
    }
    for (const char* const text :
         {"Hi, could you get me a restaurant booking on the 8th please?", "I need to find a bus to San Diego tomorrow.",
          "Can you tell me the weather in Berkeley next Monday?", "Find me a hair salon in San Jose.",
          "I would like to watch a movie tonight.", "Play me some rock music from 2017.",
          "I want to rent a car in Fresno at 10 am on March 4th.", "Is there a cheap hotel with wifi in Paris?",
          "What events are on in New York this weekend?", "Please transfer 200 dollars to my savings account.",
          "I need an appointment with a dentist in Oakland.", "Show me flights from Chicago to Seattle for two."}) {
        bed.prompts.push_back(encode_prompt(target.tokenizer(), "<|user|>{prompt}<|assistant|>", text));
    }
    return measure(bed, options, [&](const SamplerOptions& sampling, const Tokens&, KvClient client) {
        return std::make_unique<ModelDrafter>(draft.decoder(), draft.cache(), client, sampling);
    });
}

/// Without files: a random decoder and a draft that costs nothing and is right 8 times of 10.
nlohmann::ordered_json measure_random(const Options& options) {
    support::RandomDecoderOptions shape = support::tiny_options();
    shape.width = 256;
    shape.feed_forward_width = 1024;
    shape.layer_count = 6;
    shape.head_count = 8;
    shape.kv_head_count = 4;
    shape.vocabulary_size = 4096;
    support::TinyDecoder target(shape);
    Bed bed{target.runtime(), target.cache(), support::TinyDecoder::kBatchTokens, {}, {{1, 2, 3}, {7, 8}}};
    return measure(bed, options, [&](const SamplerOptions& sampling, const Tokens& text, KvClient) {
        return std::make_unique<support::ScriptedDrafter>(text, shape.vocabulary_size, 0.8, sampling.seed);
    });
}

int run(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
        if (argument == "--prompts") {
            options.prompts = std::strtoull(value(), nullptr, 10);
        } else if (argument == "--answers") {
            options.answers = std::strtoull(value(), nullptr, 10);
        } else if (argument == "--temperature") {
            options.temperature = std::strtof(value(), nullptr);
        } else if (argument == "--depth") {
            options.depth = static_cast<std::uint32_t>(std::strtoul(value(), nullptr, 10));
        } else if (argument == "--workers") {
            options.workers = std::strtoull(value(), nullptr, 10);
        } else {
            options.files.push_back(argument);
        }
    }
    if (options.files.size() != 0 && options.files.size() != 2) {
        std::cerr << "usage: bench_generate [--prompts N] [--answers N] [--temperature T] [--depth K] [--workers N] "
                     "[MODEL.gguf DRAFT.gguf]\n";
        return 2;
    }
    nlohmann::ordered_json report = check_identity(options);
    engine::WorkerTeam team({.worker_count = options.workers, .cpu_indices = {}});
    report.update(options.files.empty() ? measure_random(options) : measure_pair(options, team));
    std::cout << report.dump() << '\n';
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "bench_generate: " << error.what() << '\n';
        return 1;
    }
}

// perceptd-generate: one prompt, one answer, in this process and without the daemon. Exit status 0 done, 1 failed,
// 2 wrong usage. The text goes to stdout as it is made, the counters to stderr.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "generate/generation.hpp"
#include "generate/lookup_drafter.hpp"
#include "generate/model_drafter.hpp"
#include "generate/prompt.hpp"
#include "generate/suffix_drafter.hpp"
#include "generate/text_model.hpp"
#include "whole_number.hpp"

namespace {

using namespace perceptd;
using namespace perceptd::generate;

constexpr KvClient kClient = 1;

struct Arguments {
    std::string model;
    std::string prompt;
    std::string draft;
    std::string source = "auto";
    std::string depth = "auto";
    std::string form;
    std::size_t workers = 0;
    GenerationOptions generation;
    bool as_json = false;
};

Generation* running = nullptr;

void cancel(int) {
    if (running != nullptr) {
        running->cancel();
    }
}

/// The form that the vocabulary's own marks suggest; plain text without them.
std::string form_of(const model::Vocabulary& words) {
    for (const auto& [user, form] :
         {std::pair{"<|user|>", "<|user|>{prompt}<|assistant|>"}, std::pair{"<|im_start|>",
                                                                            "<|im_start|>user\n{prompt}<|im_end|>\n"
                                                                            "<|im_start|>assistant\n"}}) {
        const auto id = words.longest_special(user, true);
        if (id && words.bytes_of(*id) == user) {
            return form;
        }
    }
    return std::string(kPromptMark);
}

std::unique_ptr<Drafter> make_drafter(const std::string& source, TextModel* draft, const SamplerOptions& sampling) {
    if (draft != nullptr) {
        return std::make_unique<ModelDrafter>(draft->decoder(), draft->cache(), kClient, sampling);
    }
    if (source == "suffix") {
        return std::make_unique<SuffixDrafter>();
    }
    return std::make_unique<LookupDrafter>();
}

void report(const Generation& generation, double duration_s, const std::string& text, bool as_json) {
    const SpeculationCounts& counts = generation.counts();
    const auto tokens = static_cast<double>(generation.token_count());
    const double tokens_s = tokens / duration_s;
    const double tokens_per_pass = counts.passes == 0 ? 0 : tokens / static_cast<double>(counts.passes);
    if (as_json) {
        const Headroom headroom = generation.headroom();
        const nlohmann::ordered_json object{{"text", text},
                                            {"finish", name_of(generation.finish())},
                                            {"tokens", generation.token_count()},
                                            {"context_used_tokens", headroom.used_tokens},
                                            {"context_capacity_tokens", *headroom.capacity_tokens},
                                            {"passes", counts.passes},
                                            {"prompt_only_passes", counts.prompt_passes},
                                            {"drafted", counts.drafted},
                                            {"accepted", counts.accepted},
                                            {"acceptance", counts.acceptance()},
                                            {"tokens_per_pass", tokens_per_pass},
                                            {"tokens_s", tokens_s}};
        std::cout << object.dump() << '\n';
        return;
    }
    std::cout << '\n';
    std::cerr << generation.token_count() << " tokens in " << counts.passes << " passes (" << tokens_per_pass
              << " per pass), " << counts.accepted << " of " << counts.drafted << " drafted accepted, " << tokens_s
              << " tokens/s, ended by " << name_of(generation.finish()) << '\n';
}

int run(const Arguments& arguments) {
    const std::size_t workers =
        arguments.workers != 0 ? arguments.workers : std::max(1U, std::thread::hardware_concurrency() / 2);
    engine::WorkerTeam team({.worker_count = workers, .cpu_indices = {}});
    TextModel target(arguments.model, team);
    std::optional<TextModel> draft;
    if (!arguments.draft.empty()) {
        draft.emplace(arguments.draft, team);
        require_same_vocabulary(target, *draft);
    }
    const model::Vocabulary& words = target.tokenizer().vocabulary();
    GenerationOptions options = arguments.generation;
    DepthOptions depths;
    if (arguments.source == "none") {
        depths.fixed = 0;
    } else if (arguments.depth != "auto") {
        depths.fixed = static_cast<std::uint32_t>(std::stoul(arguments.depth));
    }
    const std::string form = arguments.form.empty() ? form_of(words) : arguments.form;
    options.continues_text = form == kPromptMark;
    const auto prompt = encode_prompt(target.tokenizer(), form, arguments.prompt);
    Depth depth(depths);
    const auto drafter = make_drafter(arguments.source, draft ? &*draft : nullptr, options.sampling);
    Generation generation(words, target.open(kClient, target.context_tokens_max()), *drafter, depth, options, prompt);
    running = &generation;
    std::signal(SIGINT, cancel);
    const std::int64_t started_at_ns = monotonic_ns();
    std::string text;
    while (generation.finish() == FinishReason::None) {
        const Piece piece = generation.step();
        text += piece.text;
        if (!arguments.as_json) {
            std::cout << piece.text << std::flush;
        }
    }
    const double duration_s = static_cast<double>(monotonic_ns() - started_at_ns) / static_cast<double>(kNsPerSecond);
    std::signal(SIGINT, SIG_DFL);
    running = nullptr;
    report(generation, duration_s, text, arguments.as_json);
    if (generation.finish() == FinishReason::Failed) {
        std::cerr << "perceptd-generate: a pass failed: " << name_of(generation.status()) << '\n';
        return 1;
    }
    return 0;
}

bool is_depth(const std::string& text) {
    return text == "auto" ||
           (!text.empty() && text.size() <= 2 && text.find_first_not_of("0123456789") == std::string::npos &&
            std::stoul(text) <= kDraftTokensMax);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Answers a prompt with a GGUF model in this process, with exact speculative decoding.",
                 "perceptd-generate");
    app.set_version_flag("--version", std::string("perceptd-generate ") + PERCEPTD_VERSION);
    Arguments arguments;
    SamplerOptions& sampling = arguments.generation.sampling;
    app.add_option("model", arguments.model, "GGUF file")->required();
    app.add_option("prompt", arguments.prompt, "The user's text")->required();
    app.add_option("--draft", arguments.draft, "GGUF file of a draft model with the same vocabulary");
    app.add_option("--source", arguments.source, "Without a draft model, guesses come from lookup, suffix or none")
        ->check(CLI::IsMember({"auto", "lookup", "suffix", "none"}))
        ->capture_default_str();
    app.add_option("--depth", arguments.depth, "Tokens drafted per pass: 0 to 16, or auto; never changes the text")
        ->check([](const std::string& text) { return is_depth(text) ? "" : "must be auto or 0 to 16"; })
        ->capture_default_str();
    app.add_option("--temperature", sampling.temperature, "0: always the likeliest token")->capture_default_str();
    app.add_option("--seed", sampling.seed, "The same seed gives the same text on any machine")
        ->check(whole_number<std::uint64_t>())
        ->capture_default_str();
    app.add_option("--top-k", sampling.top_k, "0: all")
        ->check(whole_number<decltype(sampling.top_k)>())
        ->capture_default_str();
    app.add_option("--top-p", sampling.top_p, "1: all")->capture_default_str();
    app.add_option("--min-p", sampling.min_p, "0: all")->capture_default_str();
    app.add_option("--repetition-penalty", sampling.repetition_penalty, "1: none")->capture_default_str();
    app.add_option("--tokens", arguments.generation.tokens_max, "At most so many")
        ->check(whole_number<std::uint32_t>())
        ->capture_default_str();
    app.add_option("--stop", arguments.generation.stops, "A string that ends the answer; may be repeated");
    app.add_option("--template", arguments.form, "With {prompt} for the text; default: from the vocabulary's marks");
    app.add_option("--workers", arguments.workers, "Threads; default: half of the processors")
        ->check(whole_number<std::uint32_t>());
    app.add_flag("--json", arguments.as_json, "One JSON object at the end instead of text");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    try {
        const int status = run(arguments);
        if (!std::cout.flush()) {
            throw std::runtime_error("the output could not be written; is the disk full?");
        }
        return status;
    } catch (const std::exception& error) {
        std::cerr << "perceptd-generate: " << error.what() << '\n';
        return 1;
    }
}

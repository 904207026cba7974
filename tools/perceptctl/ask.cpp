#include "ask.hpp"

#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <percept/percept.hpp>

namespace perceptctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPollMs = 500;

volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int) {
    stop_requested = 1;
}

void catch_signals() {
    struct sigaction action {};
    action.sa_handler = request_stop;  // no SA_RESTART: the wait for a part is to end
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
}

const char* name_of(std::uint32_t finish) {
    switch (finish) {
        case PERCEPT_FINISH_NONE: return "none";
        case PERCEPT_FINISH_STOP_TOKEN: return "stop_token";
        case PERCEPT_FINISH_STOP_STRING: return "stop_string";
        case PERCEPT_FINISH_TOKENS_MAX: return "tokens_max";
        case PERCEPT_FINISH_CANCELLED: return "cancelled";
        case PERCEPT_FINISH_FAILED: return "failed";
        case PERCEPT_FINISH_INTERRUPTED: return "interrupted";
        default: return "unknown";
    }
}

percept_answer begin(percept::Client& client, const AskOptions& options) {
    if (options.resume != 0) {
        return client.resume(options.resume, options.from);
    }
    std::vector<const char*> stops;
    for (const std::string& stop : options.stops) {
        stops.push_back(stop.c_str());
    }
    percept_question question = PERCEPT_QUESTION_INIT;
    question.model = options.model.c_str();
    question.prompt = options.prompt.c_str();
    question.thread = options.thread;
    question.seed = options.seed;
    question.has_seed = options.has_seed ? 1 : 0;
    question.tokens_max = options.tokens_max;
    question.temperature = options.temperature;
    question.top_k = options.top_k;
    question.top_p = options.top_p;
    question.min_p = options.min_p;
    question.repetition_penalty = options.repetition_penalty;
    question.stops = stops.data();
    question.stop_count = static_cast<std::uint32_t>(stops.size());
    return client.ask(question);
}

struct Told {
    std::string text;
    std::uint64_t next_number = 0;
    std::uint32_t finish = PERCEPT_FINISH_NONE;
    std::string failure;
    std::uint64_t used_tokens = 0;
};

void show(const percept_part& part, const AskOptions& options, Told& told) {
    told.text.append(part.text, part.text_bytes);
    told.next_number = part.first_number + part.token_count;
    told.finish = part.finish;
    told.failure = part.failure;
    told.used_tokens = part.context_used_tokens;
    if (options.json) {
        Json line{{"first_number", part.first_number},
                  {"tokens", std::vector<std::uint32_t>(part.token_ids, part.token_ids + part.token_count)},
                  {"text", std::string(part.text, part.text_bytes)}};
        if (part.context_used_tokens != 0) {
            line["context_used_tokens"] = part.context_used_tokens;
        }
        std::printf("%s\n", line.dump().c_str());
    } else {
        std::fwrite(part.text, 1, part.text_bytes, stdout);
    }
    std::fflush(stdout);
    if (part.headroom_level != PERCEPT_HEADROOM_NORMAL && part.finish == PERCEPT_FINISH_NONE) {
        std::cerr << "perceptctl: " << part.context_used_tokens << " of " << part.context_capacity_tokens
                  << " tokens of the context are used\n";
    }
}

std::string resume_hint(const percept_answer& answer, const Told& told) {
    return "'perceptctl ask --resume " + std::to_string(answer.generation_id) + " --from " +
           std::to_string(told.next_number) + "' reads on";
}

void conclude(const percept_answer& answer, const AskOptions& options, const Told& told) {
    if (!options.json) {
        std::printf("\n");
        std::cerr << "answer " << answer.generation_id << ": " << told.next_number << " tokens, ended by "
                  << name_of(told.finish) << "\n";
        return;
    }
    const Json whole{{"generation_id", answer.generation_id},
                     {"thread", answer.thread},
                     {"text", told.text},
                     {"first_number", answer.next_number},
                     {"next_number", told.next_number},
                     {"finish", name_of(told.finish)},
                     {"seed", answer.seed},
                     {"prompt_tokens", answer.prompt_tokens},
                     {"tokens_max", answer.tokens_max},
                     {"context_used_tokens", told.used_tokens},
                     {"context_capacity_tokens", answer.context_tokens_max}};
    std::printf("%s\n", whole.dump().c_str());
}

}  // namespace

int ask(const AskOptions& options) {
    catch_signals();
    percept::Client client(options.socket_path);
    const percept_answer answer = begin(client, options);
    Told told;
    told.next_number = answer.next_number;
    bool has_stopped = false;
    try {
        while (told.finish == PERCEPT_FINISH_NONE) {
            if (stop_requested != 0 && !has_stopped) {
                has_stopped = true;
                client.stop(answer.generation_id);
            }
            const percept_part* const part = client.next_part(kPollMs);
            if (part != nullptr && part->generation_id == answer.generation_id) {
                show(*part, options, told);
            }
        }
    } catch (const percept::Error& error) {
        std::printf(options.json ? "" : "\n");
        std::cerr << "perceptctl: " << error.what() << "; " << resume_hint(answer, told) << "\n";
        return 1;
    }
    conclude(answer, options, told);
    if (told.finish == PERCEPT_FINISH_FAILED || told.finish == PERCEPT_FINISH_INTERRUPTED) {
        std::cerr << "perceptctl: " << (told.failure.empty() ? "the answer was cut short" : told.failure) << "; "
                  << resume_hint(answer, told) << "\n";
        return 1;
    }
    return 0;
}

}  // namespace perceptctl

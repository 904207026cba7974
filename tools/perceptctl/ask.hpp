// `perceptctl ask`: one question, the answer as it is made. Owns the client for the time of the run.
// Never ends the answer when it is killed itself: --resume reads on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace perceptctl {

struct AskOptions {
    std::string socket_path;
    std::string model;
    std::string prompt;
    std::uint64_t resume = 0;  ///< an earlier answer, instead of model and prompt
    std::uint64_t from = 0;    ///< first token to show of it
    std::uint64_t thread = 0;  ///< a dialogue that goes on
    std::uint64_t seed = 0;
    bool has_seed = false;
    float temperature = 0;
    std::uint32_t top_k = 0;
    float top_p = 0;
    float min_p = 0;
    float repetition_penalty = 0;
    std::uint32_t tokens_max = 0;
    std::vector<std::string> stops;
    bool json = false;  ///< one JSON object per part, then one of the whole
};

/// Runs until the answer's end; Ctrl-C stops the answer. Gives back the exit status. Throws percept::Error.
int ask(const AskOptions& options);

}  // namespace perceptctl

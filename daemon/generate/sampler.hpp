// Logits to a token: the sampler chain, then the one exact rule, argmax(log p + g) with the noise of the position.
// The order is fixed: repetition penalty, bias, temperature, top-k, top-p, min-p. Owns its scratch memory. Never draws
// a random number of its own: two samplers with equal options and logits give the same token, which is what makes
// speculation invisible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace perceptd::generate {

struct LogitBias {
    std::uint32_t token = 0;
    float bias = 0;  ///< added to the logit; minus infinity forbids the token
};

struct SamplerOptions {
    std::uint64_t seed = 0;
    float temperature = 0;         ///< 0: the likeliest token (no noise); else 0.01 to 100
    std::uint32_t top_k = 0;       ///< 0: all
    float top_p = 1;               ///< above 0: the fewest likeliest tokens that weigh so much together; 1: all
    float min_p = 0;               ///< below 1: what is less likely than the likeliest by this factor is dropped
    float repetition_penalty = 1;  ///< 0.1 to 10: positive logits are divided by it, negative ones multiplied
    std::uint32_t repetition_window = 64;  ///< tokens before the position that count as repeated
    std::vector<LogitBias> biases;         ///< each token once
};

/// Thread-bound. choose() is real-time: no allocation, no lock.
class Sampler {
public:
    /// Throws Error(InvalidArgument) that names the option, its value and its range.
    Sampler(SamplerOptions options, std::uint32_t vocabulary_size);

    /// The token at `position` behind `history`. Equal weights go to the lowest id. NotFinite: a logit is no finite
    /// number. Invalid: another number of logits than the vocabulary has, or every token is forbidden.
    [[nodiscard]] Status choose(std::span<const float> logits, std::span<const std::uint32_t> history,
                                std::uint32_t position, std::uint32_t& chosen) noexcept;

    [[nodiscard]] const SamplerOptions& options() const noexcept { return options_; }

private:
    struct Candidate {
        double score;
        std::uint32_t token;
        /// The better first; a total order, so that no library's algorithm can decide a tie.
        [[nodiscard]] bool operator<(const Candidate& other) const noexcept {
            return score != other.score ? score > other.score : token < other.token;
        }
    };

    void penalize(std::span<const std::uint32_t> history) noexcept;
    void collect() noexcept;
    void keep_top_k() noexcept;
    void keep_top_p() noexcept;
    void keep_min_p() noexcept;
    [[nodiscard]] std::uint32_t noisiest(std::uint32_t position) const noexcept;

    SamplerOptions options_;
    double min_p_log_ = 0;
    std::vector<double> scores_;
    std::vector<Candidate> candidates_;  // with room for the whole vocabulary
    std::vector<std::uint32_t> penalized_in_;
    std::uint32_t call_ = 0;
};

}  // namespace perceptd::generate

// All weights are doubles made of IEEE operations and portable_exp; sums run in the order of (weight, id) or of ids.
#include "generate/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "generate/noise.hpp"

namespace perceptd::generate {
namespace {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();

void require(bool is_good, const char* option, double value, const char* range) {
    if (!is_good) {
        throw Error(ErrorCode::InvalidArgument,
                    std::string("sampler: ") + option + " is " + std::to_string(value) + "; it must be " + range);
    }
}

}  // namespace

Sampler::Sampler(SamplerOptions options, std::uint32_t vocabulary_size) : options_(std::move(options)) {
    const auto within = [](float value, float low, float high) { return value >= low && value <= high; };
    require(vocabulary_size > 0, "the vocabulary's size", vocabulary_size, "at least 1");
    require(options_.temperature == 0 || within(options_.temperature, 0.01F, 100), "temperature", options_.temperature,
            "0 or from 0.01 to 100");
    require(options_.top_p > 0 && options_.top_p <= 1, "top_p", options_.top_p, "above 0, at most 1");
    require(options_.min_p >= 0 && options_.min_p < 1, "min_p", options_.min_p, "from 0 to below 1");
    require(within(options_.repetition_penalty, 0.1F, 10), "repetition_penalty", options_.repetition_penalty,
            "from 0.1 to 10");
    std::vector<bool> seen(vocabulary_size);
    for (const LogitBias& bias : options_.biases) {
        require(bias.token < vocabulary_size && !seen[bias.token], "a bias's token", bias.token,
                "in the vocabulary and named once");
        require(within(bias.bias, -std::numeric_limits<float>::infinity(), 1000), "a bias", bias.bias, "at most 1000");
        seen[bias.token] = true;
    }
    min_p_log_ = options_.min_p > 0 ? portable_log(options_.min_p) : kForbidden;
    scores_.resize(vocabulary_size);
    candidates_.reserve(vocabulary_size);
    penalized_in_.resize(vocabulary_size);
}

Status Sampler::choose(std::span<const float> logits, std::span<const std::uint32_t> history, std::uint32_t position,
                       std::uint32_t& chosen) noexcept {
    if (logits.size() != scores_.size()) {
        return Status::Invalid;
    }
    bool is_finite = true;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        is_finite = is_finite && std::abs(logits[i]) <= std::numeric_limits<float>::max();
        scores_[i] = static_cast<double>(logits[i]);
    }
    if (!is_finite) {
        return Status::NotFinite;
    }
    penalize(history);
    for (const LogitBias& bias : options_.biases) {
        scores_[bias.token] += static_cast<double>(bias.bias);
    }
    const auto best = std::max_element(scores_.begin(), scores_.end());  // the first, so the lowest id
    if (*best == kForbidden) {
        return Status::Invalid;
    }
    if (options_.temperature == 0) {
        chosen = static_cast<std::uint32_t>(best - scores_.begin());
        return Status::Ok;
    }
    collect();
    keep_top_k();
    keep_top_p();
    keep_min_p();
    chosen = noisiest(position);
    return Status::Ok;
}

void Sampler::penalize(std::span<const std::uint32_t> history) noexcept {
    if (options_.repetition_penalty == 1) {
        return;
    }
    if (++call_ == 0) {
        std::fill(penalized_in_.begin(), penalized_in_.end(), 0U);
        call_ = 1;
    }
    const double penalty = static_cast<double>(options_.repetition_penalty);
    for (const std::uint32_t token : history.last(std::min<std::size_t>(history.size(), options_.repetition_window))) {
        if (token >= scores_.size() || penalized_in_[token] == call_) {
            continue;  // an embedding, or a token that came before
        }
        penalized_in_[token] = call_;
        scores_[token] = scores_[token] > 0 ? scores_[token] / penalty : scores_[token] * penalty;
    }
}

void Sampler::collect() noexcept {
    const double temperature = static_cast<double>(options_.temperature);
    candidates_.clear();
    for (std::uint32_t token = 0; token < scores_.size(); ++token) {
        if (scores_[token] != kForbidden) {
            candidates_.push_back({scores_[token] / temperature, token});
        }
    }
}

void Sampler::keep_top_k() noexcept {
    if (options_.top_k == 0 || options_.top_k >= candidates_.size()) {
        return;
    }
    const auto end = candidates_.begin() + options_.top_k;
    std::nth_element(candidates_.begin(), end, candidates_.end());
    candidates_.erase(end, candidates_.end());
    std::sort(candidates_.begin(), candidates_.end());
}

void Sampler::keep_top_p() noexcept {
    if (options_.top_p == 1) {
        return;
    }
    const double best = std::min_element(candidates_.begin(), candidates_.end())->score;
    double total = 0;
    for (const Candidate& candidate : candidates_) {
        total += portable_exp(candidate.score - best);
    }
    // A heap gives the likeliest one by one: sorting a whole vocabulary for a handful would take longer than a pass.
    const auto worse = [](const Candidate& a, const Candidate& b) { return b < a; };
    std::make_heap(candidates_.begin(), candidates_.end(), worse);
    double missing = total * static_cast<double>(options_.top_p);
    auto heap_end = candidates_.end();
    do {
        std::pop_heap(candidates_.begin(), heap_end, worse);
        --heap_end;
        missing -= portable_exp(heap_end->score - best);
    } while (missing > 0 && heap_end != candidates_.begin());
    candidates_.erase(candidates_.begin(), heap_end);
}

void Sampler::keep_min_p() noexcept {
    if (options_.min_p == 0) {
        return;
    }
    const double least = std::min_element(candidates_.begin(), candidates_.end())->score + min_p_log_;
    std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.score < least; });
}

std::uint32_t Sampler::noisiest(std::uint32_t position) const noexcept {
    const Noise noise(options_.seed, position);
    const auto with_noise = [&](const Candidate& candidate) {
        return Candidate{candidate.score + noise.gumbel(candidate.token), candidate.token};
    };
    // log p differs from the score by a constant, which no maximum sees.
    Candidate best = with_noise(*std::min_element(candidates_.begin(), candidates_.end()));
    for (const Candidate& candidate : candidates_) {
        const std::uint64_t bits = noise.bits(candidate.token);
        if (candidate.score + Noise::bound_of(bits) >= best.score) {
            const Candidate found{candidate.score + Noise::gumbel_of(bits), candidate.token};
            best = std::min(best, found);
        }
    }
    return best.token;
}

}  // namespace perceptd::generate

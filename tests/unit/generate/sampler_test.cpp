#include "generate/sampler.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/hot_path.hpp"
#include "generate/noise.hpp"

namespace perceptd::generate {
namespace {

std::vector<float> some_logits(std::uint64_t seed, std::size_t count) {
    std::vector<float> logits(count);
    for (std::size_t i = 0; i < count; ++i) {
        logits[i] = static_cast<float>(3 * sensor::random_normal(seed, 0, i));
    }
    return logits;
}

std::uint32_t choose(Sampler& sampler, const std::vector<float>& logits, std::vector<std::uint32_t> history = {},
                     std::uint32_t position = 0) {
    std::uint32_t chosen = 0;
    REQUIRE(sampler.choose(logits, history, position, chosen) == Status::Ok);
    return chosen;
}

/// The chain by its definition, in the C library's arithmetic and with full sorts; and the set that it keeps.
std::uint32_t by_definition(const SamplerOptions& options, const std::vector<float>& logits,
                            const std::vector<std::uint32_t>& history, std::uint32_t position) {
    std::vector<double> scores(logits.begin(), logits.end());
    std::vector<bool> repeated(scores.size());
    const std::size_t window = std::min<std::size_t>(history.size(), options.repetition_window);
    for (std::size_t i = history.size() - window; i < history.size(); ++i) {
        repeated[history[i]] = true;
    }
    for (std::size_t v = 0; v < scores.size(); ++v) {
        const double penalty = repeated[v] ? static_cast<double>(options.repetition_penalty) : 1;
        scores[v] = scores[v] > 0 ? scores[v] / penalty : scores[v] * penalty;
    }
    for (const LogitBias& bias : options.biases) {
        scores[bias.token] += static_cast<double>(bias.bias);
    }
    std::vector<std::uint32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
    if (options.temperature == 0) {
        return order[0];
    }
    std::vector<double> weights;
    for (const std::uint32_t v : order) {
        weights.push_back(std::exp((scores[v] - scores[order[0]]) / static_cast<double>(options.temperature)));
    }
    std::size_t kept = options.top_k == 0 ? order.size() : std::min<std::size_t>(order.size(), options.top_k);
    const double total = std::accumulate(weights.begin(), weights.begin() + static_cast<long>(kept), 0.0);
    double sum = 0;
    for (std::size_t i = 0; i < kept && options.top_p < 1; ++i) {
        sum += weights[i];
        if (sum >= total * static_cast<double>(options.top_p)) {
            kept = i + 1;
        }
    }
    while (kept > 1 && weights[kept - 1] < static_cast<double>(options.min_p)) {
        --kept;
    }
    std::uint32_t best = order[0];
    double best_value = -1e300;
    for (std::size_t i = 0; i < kept; ++i) {
        const double value = std::log(weights[i]) + Noise(options.seed, position).gumbel(order[i]);
        if (value > best_value) {
            best_value = value;
            best = order[i];
        }
    }
    return best;
}

}  // namespace

TEST_CASE("the sampler does what its definition says, for all options together") {
    std::vector<std::uint32_t> history(100);
    for (std::uint32_t i = 0; i < history.size(); ++i) {
        history[i] = i * 37 % 300;
    }
    int differences = 0;
    for (std::uint64_t round = 0; round < 3000; ++round) {
        const auto pick = [&](std::uint64_t stream, auto... values) {
            const float choices[] = {static_cast<float>(values)...};
            return choices[sensor::random_bits(round, stream, 0) % std::size(choices)];
        };
        SamplerOptions options{.seed = round,
                               .temperature = pick(1, 0, 0.3, 0.8, 1, 2),
                               .top_k = static_cast<std::uint32_t>(pick(2, 0, 1, 5, 40, 1000)),
                               .top_p = pick(3, 1, 0.9, 0.5, 0.01),
                               .min_p = pick(4, 0, 0.05, 0.5),
                               .repetition_penalty = pick(5, 1, 1.3, 0.8),
                               .repetition_window = static_cast<std::uint32_t>(pick(6, 0, 10, 64, 500))};
        if (pick(7, 0, 1) > 0) {
            options.biases = {{3, 4.0F}, {5, -std::numeric_limits<float>::infinity()}};
        }
        const auto logits = some_logits(round, 300);
        Sampler sampler(options, 300);
        const auto position = static_cast<std::uint32_t>(round % 50);
        // The definition's own rounding may decide a cut at a boundary otherwise; that is rare.
        differences += choose(sampler, logits, history, position) != by_definition(options, logits, history, position);
    }
    CHECK(differences <= 1);
}

TEST_CASE("samples have the distribution of the softmax") {
    const std::vector<float> logits{1.0F, 0.0F, -1.0F, 2.0F, 0.5F, 1.0F};
    Sampler sampler({.seed = 11, .temperature = 0.7F}, 6);
    std::vector<double> counts(6);
    constexpr int kCount = 1000000;
    for (std::uint32_t position = 0; position < kCount; ++position) {
        ++counts[choose(sampler, logits, {}, position)];
    }
    double total = 0;
    for (const float logit : logits) {
        total += std::exp(static_cast<double>(logit) / static_cast<double>(0.7F));
    }
    double chi_square = 0;
    for (std::size_t v = 0; v < 6; ++v) {
        const double wanted = kCount * std::exp(static_cast<double>(logits[v]) / static_cast<double>(0.7F)) / total;
        chi_square += (counts[v] - wanted) * (counts[v] - wanted) / wanted;
    }
    CHECK(chi_square < 20.5);  // 5 degrees of freedom, p = 0.001
}

TEST_CASE("ties go to the lowest id, and temperature 0 knows no seed") {
    std::vector<float> logits(100, 1.0F);
    Sampler greedy({.seed = 1}, 100);
    CHECK(choose(greedy, logits) == 0);
    logits[0] = 0.5F;
    logits[70] = logits[71] = 2.0F;
    CHECK(choose(greedy, logits) == 70);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Sampler one({.seed = seed, .temperature = 1, .top_k = 1}, 100);
        CHECK(choose(one, logits, {}, static_cast<std::uint32_t>(seed)) == 70);
        // Of equal tokens at the edge of the cut the lower id stays.
        Sampler three({.seed = seed, .temperature = 100, .top_k = 3}, 100);
        const std::uint32_t chosen = choose(three, logits);
        CHECK((chosen == 70 || chosen == 71 || chosen == 1));
    }
}

TEST_CASE("what is no number is an error, and what leaves no token too") {
    for (const float bad :
         {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        auto logits = some_logits(1, 50);
        logits[49] = bad;
        std::uint32_t chosen = 7;
        for (const float temperature : {0.0F, 0.8F}) {
            Sampler sampler({.temperature = temperature}, 50);
            CHECK(sampler.choose(logits, {}, 0, chosen) == Status::NotFinite);
        }
        CHECK(chosen == 7);
    }
    const float none = -std::numeric_limits<float>::infinity();
    Sampler forbidden({.temperature = 1, .biases = {{0, none}, {1, none}}}, 2);
    std::uint32_t chosen = 0;
    CHECK(forbidden.choose(some_logits(1, 2), {}, 0, chosen) == Status::Invalid);
    CHECK(forbidden.choose(some_logits(1, 3), {}, 0, chosen) == Status::Invalid);
}

TEST_CASE("options out of range are refused by name") {
    const auto refused = [](const SamplerOptions& options, const char* name) {
        try {
            Sampler sampler(options, 10);
            return false;
        } catch (const Error& error) {
            return error.code() == ErrorCode::InvalidArgument &&
                   std::string(error.what()).find(name) != std::string::npos;
        }
    };
    const float nan = std::nanf("");
    CHECK(refused({.temperature = -1}, "temperature"));
    CHECK(refused({.temperature = nan}, "temperature"));
    CHECK(refused({.temperature = 1e-4F}, "temperature"));
    CHECK(refused({.top_p = 0}, "top_p"));
    CHECK(refused({.top_p = nan}, "top_p"));
    CHECK(refused({.min_p = 1}, "min_p"));
    CHECK(refused({.repetition_penalty = 0}, "repetition_penalty"));
    CHECK(refused({.biases = {{10, 0}}}, "token"));
    CHECK(refused({.biases = {{1, 0}, {1, 1}}}, "token"));
    CHECK(refused({.biases = {{1, nan}}}, "bias"));
    CHECK_FALSE(refused({}, ""));
}

TEST_CASE("choosing allocates nothing") {
    const auto logits = some_logits(1, 5000);
    const std::vector<std::uint32_t> history{1, 2, 3};
    Sampler sampler({.temperature = 0.8F, .top_k = 100, .top_p = 0.95F, .min_p = 0.01F, .repetition_penalty = 1.1F},
                    5000);
    Sampler plain({.temperature = 0.8F, .top_p = 0.95F}, 5000);
    const hot_path::Scope hot;
    const std::uint64_t before = hot_path::allocation_count();
    std::uint32_t chosen = 0;
    REQUIRE(sampler.choose(logits, history, 3, chosen) == Status::Ok);
    REQUIRE(plain.choose(logits, history, 3, chosen) == Status::Ok);
    CHECK(hot_path::allocation_count() == before);
}

}  // namespace perceptd::generate

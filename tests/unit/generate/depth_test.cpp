#include "generate/depth.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "sensor/counter_rng.hpp"

namespace perceptd::generate {
namespace {

/// Passes of a draft whose k-th token is right with probability chance(k), and what they cost.
struct Simulation {
    std::function<double(std::size_t)> chance;
    std::function<double(std::uint32_t)> cost;
    std::uint64_t seed = 1;
    std::uint64_t draws = 0;
    double tokens = 0;
    double total_cost = 0;

    void pass(Depth& depth) {
        const std::uint32_t drafted = depth.choose();
        const std::uint32_t accepted = outcome(drafted);
        tokens += accepted + 1;
        total_cost += cost(drafted);
        depth.note(drafted, accepted);
        depth.note_cost(drafted, cost(drafted));
    }
    std::uint32_t outcome(std::uint32_t drafted) {
        std::uint32_t accepted = 0;
        while (accepted < drafted && sensor::random_uniform(seed, draws++, 0) < chance(accepted)) {
            ++accepted;
        }
        return accepted;
    }
    [[nodiscard]] double rate() const { return tokens / total_cost; }
};

/// By simulation alone: the rate of always drafting `depth`.
double simulated_rate(Simulation simulation, std::uint32_t depth) {
    double tokens = 0;
    constexpr int kPasses = 40000;
    for (int i = 0; i < kPasses; ++i) {
        tokens += simulation.outcome(depth) + 1;
    }
    return tokens / kPasses / simulation.cost(depth);
}

}  // namespace

TEST_CASE("acceptance is estimated without the tokens that nobody judged") {
    for (const std::size_t drafted : {1, 4, 16}) {
        AcceptanceEstimate estimate({.forgetting = 0.99999});
        Simulation simulation{.chance = [](std::size_t k) { return k == 0 ? 0.6 : 0.85; }, .cost = {}};
        double accepted = 0;
        constexpr int kPasses = 60000;
        for (int i = 0; i < kPasses; ++i) {
            const std::uint32_t outcome = simulation.outcome(static_cast<std::uint32_t>(drafted));
            accepted += outcome;
            estimate.note(drafted, outcome);
        }
        CAPTURE(drafted);
        CHECK(estimate.probability(0) == Approx(0.6).margin(0.01));
        if (drafted > 1) {
            CHECK(estimate.probability(2) == Approx(0.85).margin(0.01));
        }
        double wanted = 1;
        double reached = 0.6;
        for (std::size_t k = 0; k < drafted; ++k, reached *= 0.85) {
            wanted += reached;
        }
        CHECK(estimate.tokens_per_pass(drafted) == Approx(wanted).epsilon(0.015));
        CHECK(accepted / kPasses + 1 == Approx(wanted).epsilon(0.015));
    }
}

TEST_CASE("an estimate follows a change and forgets the past") {
    AcceptanceEstimate estimate;
    for (int i = 0; i < 500; ++i) {
        estimate.note(4, 4);
    }
    CHECK(estimate.probability(3) > 0.97);
    for (int i = 0; i < 150; ++i) {
        estimate.note(4, 0);
    }
    CHECK(estimate.probability(0) < 0.08);
    CHECK(estimate.tokens_per_pass(4) < 1.2);
    estimate.weaken(8);
    for (int i = 0; i < 10; ++i) {
        estimate.note(2, 2);
    }
    CHECK(estimate.probability(0) > 0.5);
}

TEST_CASE("the speed is close to that of the best depth, which simulation of every depth finds") {
    double share_sum = 0;
    int cases = 0;
    for (const double alpha : {0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97}) {
        for (const double draft_cost : {0.02, 0.1, 0.3, 0.6}) {
            for (const double row_cost : {0.0, 0.05, 0.2}) {
                Simulation simulation{.chance = [=](std::size_t) { return alpha; },
                                      .cost = [=](std::uint32_t k) { return 1 + k * (draft_cost + row_cost); }};
                double best = 0;
                for (const std::uint32_t depth : kDepths) {
                    best = std::max(best, simulated_rate(simulation, depth));
                }
                Depth depth;
                for (int i = 0; i < 5000; ++i) {
                    simulation.pass(depth);
                }
                CAPTURE(alpha, draft_cost, row_cost);
                CHECK(simulation.rate() / best > 0.94);  // hysteresis lets a depth be that is 5 % below
                share_sum += simulation.rate() / best;
                ++cases;
            }
        }
    }
    CHECK(share_sum / cases > 0.98);
}

TEST_CASE("where drafting loses it is switched off, and costs less than 2 % from then on") {
    Simulation simulation{.chance = [](std::size_t) { return 0.0; },
                          .cost = [](std::uint32_t k) { return 1 + 0.1 * k; }};
    Depth depth;
    for (int i = 0; i < 100; ++i) {
        simulation.pass(depth);
    }
    CHECK(depth.is_off());
    simulation.tokens = simulation.total_cost = 0;
    for (int i = 0; i < 5000; ++i) {
        simulation.pass(depth);
    }
    CHECK(simulation.rate() > 0.98);
}

TEST_CASE("switched off, it is tried again and comes back when the draft has become good") {
    bool is_good = false;
    Simulation simulation{.chance = [&](std::size_t) { return is_good ? 0.9 : 0.0; },
                          .cost = [](std::uint32_t k) { return 1 + 0.1 * k; }};
    Depth depth;
    for (int i = 0; i < 300; ++i) {
        simulation.pass(depth);
    }
    REQUIRE(depth.is_off());
    is_good = true;
    int passes = 0;
    while (depth.is_off() && passes < 1000) {
        simulation.pass(depth);
        ++passes;
    }
    CHECK(passes < 200);
}

TEST_CASE("piecewise acceptance: close to the one who knows it, and always above the fixed depths' worst") {
    const std::vector<double> phases{0.9, 0.3, 0.75, 0.05, 0.95, 0.6};
    const auto cost = [](std::uint32_t k) { return 1 + 0.12 * k; };
    Depth depth;
    double tokens = 0;
    double time = 0;
    double oracle_time = 0;
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
        Simulation simulation{.chance = [&](std::size_t) { return phases[phase]; }, .cost = cost, .seed = phase + 5};
        double best = 0;
        for (const std::uint32_t fixed : kDepths) {
            best = std::max(best, simulated_rate(simulation, fixed));
        }
        for (int i = 0; i < 1500; ++i) {
            simulation.pass(depth);
        }
        tokens += simulation.tokens;
        time += simulation.total_cost;
        oracle_time += simulation.tokens / best;
    }
    INFO("share of the oracle's speed: " << oracle_time / time);
    CHECK(oracle_time / time > 0.93);
    CHECK(tokens > 0);
}

TEST_CASE("a fixed depth stays, and costs between measured depths are on a line") {
    Depth fixed({.fixed = 3});
    CHECK(fixed.choose() == 3);
    fixed.note(3, 0);
    fixed.note_cost(3, 100);
    CHECK(fixed.choose() == 3);
    Depth depth;
    CHECK(depth.rate_of(4) == 0);
    depth.note_cost(0, 10);
    CHECK(depth.cost_of(2) == Approx(10 + 2 * 0.8));
    depth.note_cost(8, 18);
    CHECK(depth.cost_of(2) == Approx(12));
    CHECK(depth.cost_of(16) == Approx(18 + 8 * 0.8));
    depth.note_cost(8, 1e9);  // a pass that was interrupted
    CHECK(depth.cost_of(8) < 18 * 1.31);
    depth.note_cost(8, std::nan(""));
    CHECK(depth.cost_of(8) < 18 * 1.31);
}

}  // namespace perceptd::generate

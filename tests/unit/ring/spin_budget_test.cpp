#include "spin_budget.hpp"

#include <catch2/catch.hpp>

using perceptd::SpinBudget;

TEST_CASE("no limit, no spin", "[spin]") {
    SpinBudget budget(0);
    for (int i = 0; i < 100; ++i) {
        REQUIRE(budget.rounds() == 0);
        budget.slept(1000);
    }
}

TEST_CASE("quick answers are waited for, slow ones are slept through", "[spin]") {
    SpinBudget budget(30);
    const std::uint32_t limit = 30 * perceptd::spin_rounds_per_us();
    for (int i = 0; i < 100; ++i) {
        budget.found_after(40);
    }
    CHECK(budget.rounds() >= 40);
    CHECK(budget.rounds() <= limit);
    for (int i = 0; i < 100; ++i) {
        budget.slept(5'000'000);
    }
    std::uint32_t spun = 0;
    int probes = 0;
    for (int i = 0; i < 64; ++i) {
        const std::uint32_t rounds = budget.rounds();
        spun += rounds;
        probes += rounds != 0;
        budget.slept(5'000'000);
    }
    // Every 32nd: enough to find out that the other side is quick again, and next to nothing of the time.
    CHECK(probes == 2);
    CHECK(spun == 2 * limit);
    for (int i = 0; i < 200; ++i) {
        budget.slept(10'000);  // 10 us: shorter than the limit, so spinning would have met it
    }
    CHECK(budget.rounds() > 0);
}

#include "graph/tile_plan.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>

#include "base/error.hpp"

namespace perceptd::graph {
namespace {

/// Counts the transfers of the loops themselves: another way to the same numbers as the closed forms.
struct DmaCounter {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    void move(std::uint64_t amount) {
        bytes += amount;
        ++count;
    }
};

DmaCounter run_linear(const LinearShape& shape, LoopOrder order, std::uint32_t token_tile, std::uint32_t row_tile) {
    DmaCounter dma;
    const auto loop = [](std::uint32_t whole, std::uint32_t tile, auto&& body) {
        for (std::uint32_t at = 0; at < whole; at += tile) {
            body(std::min(tile, whole - at));
        }
    };
    std::uint64_t output_elements = 0;
    const auto result = [&](std::uint32_t tokens, std::uint32_t rows) {
        output_elements += std::uint64_t{tokens} * rows;
        ++dma.count;
    };
    if (order == LoopOrder::TokenOuter) {
        loop(shape.tokens, token_tile, [&](std::uint32_t tokens) {
            dma.move(tokens * shape.input_row_bytes);
            loop(shape.outer_width, row_tile, [&](std::uint32_t rows) {
                dma.move(rows * shape.weight_row_bytes);
                result(tokens, rows);
            });
        });
    } else {
        loop(shape.outer_width, row_tile, [&](std::uint32_t rows) {
            dma.move(rows * shape.weight_row_bytes);
            loop(shape.tokens, token_tile, [&](std::uint32_t tokens) {
                dma.move(tokens * shape.input_row_bytes);
                result(tokens, rows);
            });
        });
    }
    dma.bytes += output_elements * shape.output_row_bytes / shape.outer_width;
    return dma;
}

DmaCounter run_fused(const FeedForwardShape& shape, std::uint32_t token_tile, std::uint32_t ffn_tile) {
    DmaCounter dma;
    const std::uint64_t row_bytes = shape.hidden_width / 32 * shape.activation_group_bytes;
    for (std::uint32_t token = 0; token < shape.tokens; token += token_tile) {
        const std::uint64_t tokens = std::min(token_tile, shape.tokens - token);
        dma.move(tokens * row_bytes);
        for (std::uint32_t ffn = 0; ffn < shape.ffn_width; ffn += ffn_tile) {
            const std::uint64_t width = std::min(ffn_tile, shape.ffn_width - ffn);
            for (int matrix = 0; matrix < 2; ++matrix) {
                dma.move(width * (shape.hidden_width / 32) * shape.weight_group_bytes);
            }
            dma.move(shape.hidden_width * (width / 32) * shape.weight_group_bytes);
        }
        dma.move(tokens * row_bytes);
    }
    return dma;
}

FeedForwardShape r3b(std::uint32_t tokens) {
    return {.tokens = tokens,
            .hidden_width = 3072,
            .ffn_width = 8192,
            .weight_group_bytes = 21,  // 0.65 bytes per weight
            .activation_group_bytes = 32};
}

constexpr std::uint64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("the closed forms count what the loops move") {
    for (const std::uint32_t tokens : {1U, 3U, 7U}) {
        const LinearShape linear{tokens, 64, 10, 36, 80, 40};
        const FeedForwardShape block{tokens, 64, 160, 18, 40};
        for (std::uint32_t token_tile = 1; token_tile <= tokens; ++token_tile) {
            for (std::uint32_t row_tile = 1; row_tile <= 10; ++row_tile) {
                for (const LoopOrder order : {LoopOrder::TokenOuter, LoopOrder::WeightOuter}) {
                    const TileCost cost = cost_of(linear, order, token_tile, row_tile);
                    const DmaCounter dma = run_linear(linear, order, token_tile, row_tile);
                    CHECK(cost.dram_bytes == dma.bytes);
                    CHECK(cost.dma_count == dma.count);
                }
            }
            for (std::uint32_t ffn_tile = 32; ffn_tile <= 160; ffn_tile += 32) {
                const TileCost cost = cost_of_fused(block, token_tile, ffn_tile);
                const DmaCounter dma = run_fused(block, token_tile, ffn_tile);
                CHECK(cost.dram_bytes == dma.bytes);
                CHECK(cost.dma_count == dma.count);
            }
        }
    }
}

TEST_CASE("the planner finds what brute force finds") {
    for (const std::uint32_t tokens : {1U, 4U, 9U, 20U}) {
        for (const std::uint64_t tcm : {3000ULL, 6000ULL, 9000ULL, 12000ULL, 20000ULL, 40000ULL, 200000ULL}) {
            const FeedForwardShape shape{tokens, 64, 160, 18, 40};
            const TileMachine machine{.tcm_bytes = tcm};
            std::optional<std::uint64_t> least;
            const auto consider = [&](std::uint64_t bytes, std::uint64_t footprint) {
                if (footprint <= tcm && (!least || bytes < *least)) {
                    least = bytes;
                }
            };
            const auto least_linear = [&](const LinearShape& linear) {
                std::optional<std::uint64_t> found;
                for (std::uint32_t t = 1; t <= linear.tokens; ++t) {
                    for (std::uint32_t n = 1; n <= linear.outer_width; ++n) {
                        for (const LoopOrder order : {LoopOrder::TokenOuter, LoopOrder::WeightOuter}) {
                            const TileCost cost = cost_of(linear, order, t, n);
                            if (cost.footprint_bytes <= tcm && (!found || cost.dram_bytes < *found)) {
                                found = cost.dram_bytes;
                            }
                        }
                    }
                }
                return found;
            };
            const auto gate_up = least_linear(gate_up_of(shape));
            const auto down = least_linear(down_of(shape));
            if (gate_up && down) {
                consider(*gate_up + *down + 2 * gate_up_of(shape).input_row_bytes * tokens, 0);
            }
            for (std::uint32_t t = 1; t <= tokens; ++t) {
                for (std::uint32_t f = 32; f <= 160; f += 32) {
                    const TileCost cost = cost_of_fused(shape, t, f);
                    consider(cost.dram_bytes, cost.footprint_bytes);
                }
            }
            const auto plan = plan_feed_forward(shape, machine);
            CAPTURE(tokens, tcm);
            REQUIRE(plan.has_value() == least.has_value());
            if (plan) {
                CHECK(plan->cost.dram_bytes == *least);
                CHECK(plan->cost.footprint_bytes <= tcm);
            }
        }
    }
}

TEST_CASE("attention tiles: the planner finds what brute force finds") {
    for (const std::uint64_t tcm : {200ULL, 600ULL, 2000ULL, 10000ULL, 100000ULL}) {
        const AttentionTileShape shape{6, 37, 16, 1, 1};
        std::optional<std::uint64_t> least;
        for (std::uint32_t rows = 1; rows <= 6; ++rows) {
            for (std::uint32_t positions = 1; positions <= 37; ++positions) {
                for (const TileCost& cost :
                     {cost_of_fused(shape, rows, positions), cost_of_unfused(shape, rows, positions)}) {
                    if (cost.footprint_bytes <= tcm && (!least || cost.dram_bytes < *least)) {
                        least = cost.dram_bytes;
                    }
                }
            }
        }
        const auto plan = plan_attention(shape, {.tcm_bytes = tcm});
        REQUIRE(plan.has_value() == least.has_value());
        CHECK((!plan || plan->cost.dram_bytes == *least));
    }
}

TEST_CASE("full fusion costs in prefill with a small TCM and pays with a large one, as section 6 computes") {
    // Fused over unfused traffic of a 3B-shaped block; the unfused form is the best that fits.
    const auto fused_of = [](std::uint32_t tokens, std::uint64_t tcm) {
        std::optional<std::uint64_t> least;
        for (std::uint32_t t = 1; t <= tokens; ++t) {
            const TileCost cost = cost_of_fused(r3b(tokens), t, 32);
            if (cost.footprint_bytes <= tcm && (!least || cost.dram_bytes < *least)) {
                least = cost.dram_bytes;
            }
        }
        return least;
    };
    const auto plan_of = [](std::uint32_t tokens, std::uint64_t tcm) {
        return *plan_feed_forward(r3b(tokens), {.tcm_bytes = tcm});
    };
    const double small =
        static_cast<double>(*fused_of(512, 2 * kMiB)) / static_cast<double>(plan_of(512, 2 * kMiB).cost.dram_bytes);
    CHECK(small > 2);
    CHECK_FALSE(plan_of(512, 2 * kMiB).fused);
    CHECK(plan_of(1024, 16 * kMiB).fused);
    // One token: nothing to save, because weights are all that moves.
    const double decode =
        static_cast<double>(*fused_of(1, 2 * kMiB)) / static_cast<double>(plan_of(1, 2 * kMiB).cost.dram_bytes);
    CHECK(decode == Approx(1.0).margin(0.01));
}

TEST_CASE("never worse than unfused, and nothing where nothing fits") {
    for (const std::uint32_t tokens : {1U, 5U, 64U, 512U}) {
        for (std::uint64_t tcm = kMiB / 2; tcm <= 16 * kMiB; tcm *= 2) {
            const FeedForwardShape shape = r3b(tokens);
            const TileMachine machine{.tcm_bytes = tcm};
            const auto plan = plan_feed_forward(shape, machine);
            const auto gate_up = plan_linear(gate_up_of(shape), machine);
            const auto down = plan_linear(down_of(shape), machine);
            if (gate_up && down) {
                REQUIRE(plan);
                CHECK(plan->cost.dram_bytes <= gate_up->cost.dram_bytes + down->cost.dram_bytes +
                                                   2 * gate_up_of(shape).input_row_bytes * tokens);
            }
        }
    }
    CHECK_FALSE(plan_feed_forward(r3b(1), {.tcm_bytes = 1000}));
}

TEST_CASE("senseless questions are refused") {
    CHECK_THROWS_AS(plan_feed_forward({.tokens = 1, .hidden_width = 60, .ffn_width = 64}, {.tcm_bytes = 1}), Error);
    CHECK_THROWS_AS(plan_linear({.tokens = 0}, {.tcm_bytes = 1}), Error);
    CHECK_THROWS_AS(plan_attention({}, {.tcm_bytes = 1, .bandwidth_bytes_per_s = 0}), Error);
}

}  // namespace perceptd::graph

#include "graph/memory_plan.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "decoder_shapes.hpp"
#include "graph/fuse.hpp"

namespace perceptd::graph {
namespace {

/// Plays the graph in a workspace of 64-byte cells: each node checks that its inputs still hold what their writer left.
/// This is the property that a plan must have, tested without looking at lifetimes.
bool survives_a_run(const Graph& graph, const MemoryPlan& plan) {
    std::vector<ValueId> cells(plan.workspace_bytes / kPlacementAlignmentBytes, kNone);
    const auto each_cell = [&](ValueId value, auto&& visit) {
        const Placement& place = plan.placements[value];
        for (std::uint64_t at = place.offset_bytes; at < place.offset_bytes + place.size_bytes;
             at += kPlacementAlignmentBytes) {
            visit(cells.at(at / kPlacementAlignmentBytes));
        }
    };
    bool good = true;
    for (const Node& node : graph.nodes) {
        for (const ValueId input : node.inputs) {
            each_cell(input, [&](const ValueId& cell) { good = good && cell == input; });
        }
        for (const ValueId output : node.outputs) {
            each_cell(output, [&](ValueId& cell) { cell = output; });
        }
    }
    each_cell(graph.logits, [&](const ValueId& cell) { good = good && cell == graph.logits; });
    return good;
}

}  // namespace

TEST_CASE("no value is overwritten while it is needed, for every set of fusions") {
    for (unsigned bits = 0; bits < 32; ++bits) {
        const Graph graph =
            fuse(small_graph(), {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0});
        for (const std::uint32_t tokens : {1U, 5U, 33U}) {
            const MemoryPlan plan =
                plan_memory(graph, {.tokens_max = tokens, .logit_rows_max = 2, .positions_max = 50});
            CAPTURE(bits, tokens);
            CHECK(survives_a_run(graph, plan));
            CHECK(plan.workspace_bytes >= plan.largest_live_bytes);
            // Not a proof of optimality, but a plan far above what is live at once would be a fault.
            CHECK(plan.workspace_bytes <= plan.largest_live_bytes * 3 / 2);
        }
    }
}

TEST_CASE("the check itself sees an overlap") {
    const Graph graph = fuse(small_graph());
    MemoryPlan plan = plan_memory(graph, {.tokens_max = 4, .logit_rows_max = 1, .positions_max = 8});
    REQUIRE(survives_a_run(graph, plan));
    for (Placement& placement : plan.placements) {
        placement.offset_bytes = 0;
    }
    CHECK_FALSE(survives_a_run(graph, plan));
}

TEST_CASE("the residual stream stays in one place") {
    const Graph graph = fuse(small_graph());
    const MemoryPlan plan = plan_memory(graph, {.tokens_max = 8, .logit_rows_max = 1, .positions_max = 8});
    for (const Node& node : graph.nodes) {
        if (node.kind == OpKind::LinearAdd) {
            CHECK(plan.placements[node.outputs[0]].offset_bytes == plan.placements[node.inputs[1]].offset_bytes);
        }
    }
}

TEST_CASE("fused attention needs no room for scores") {
    const PassLimits limits{.tokens_max = 16, .logit_rows_max = 1, .positions_max = 4096};
    const std::uint64_t fused = plan_memory(fuse(small_graph()), limits).workspace_bytes;
    const std::uint64_t unfused = plan_memory(small_graph(), limits).workspace_bytes;
    CHECK(unfused >= 16ULL * 4096 * 4 * 4);
    CHECK(fused < 64 * 1024);
}

TEST_CASE("limits of zero and sizes that overflow are refused") {
    const Graph graph = small_graph();
    CHECK_THROWS_AS(plan_memory(graph, {.tokens_max = 0}), Error);
    CHECK_THROWS_AS(plan_memory(graph, {.tokens_max = 0xFFFFFFFF, .logit_rows_max = 1, .positions_max = 0xFFFFFFFF}),
                    Error);
}

}  // namespace perceptd::graph

#include "graph/traffic.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.hpp"
#include "decoder_shapes.hpp"
#include "graph/fuse.hpp"
#include "graph/residency.hpp"

namespace perceptd::graph {
namespace {

std::uint64_t bytes_of(const Graph& graph, std::string_view part) {
    std::uint64_t bytes = 0;
    for (const Weight& weight : graph.weights) {
        bytes += weight.name.find(part) != std::string::npos ? weight.bytes : 0;
    }
    return bytes;
}

}  // namespace

TEST_CASE("a pass moves the weights once, the cache as far as it is seen, and what it writes") {
    const Graph graph = fuse(small_graph());
    const std::uint64_t kv = 2 * 2 * 16 * 2;  // key and value, 2 heads of 16 in F16
    const std::uint64_t all = bytes_of(graph, "");
    const std::uint64_t table = bytes_of(graph, "token_embd");
    for (const std::uint32_t tokens : {1U, 5U, 64U}) {
        const Traffic traffic = predict(graph, {.tokens = tokens, .positions_before = 100}, kv);
        // B(K) of algorithms.md section 9 without the draft's terms, plus the gathered rows.
        CHECK(traffic.weight_bytes == all - table + table / 320 * tokens);
        CHECK(traffic.kv_read_bytes == 2 * kv * (100 + tokens));
        CHECK(traffic.kv_write_bytes == 2 * kv * tokens);
        CHECK(traffic.dram_bytes() == traffic.weight_bytes + traffic.kv_read_bytes + traffic.kv_write_bytes);
    }
}

TEST_CASE("fusion does not change what a pass moves; soft tokens read no table") {
    const std::uint64_t kv = 128;
    const PassShape pass{.tokens = 7, .positions_before = 31};
    CHECK(predict(small_graph(), pass, kv) == predict(fuse(small_graph()), pass, kv));
    const Graph graph = small_graph();
    const std::uint64_t row = bytes_of(graph, "token_embd") / 320;
    CHECK(predict(graph, {.tokens = 7, .soft_tokens = 3}, kv).weight_bytes + 3 * row ==
          predict(graph, {.tokens = 7}, kv).weight_bytes);
}

TEST_CASE("residency fills its budget with what saves most, and the prediction follows") {
    const Graph target = fuse(small_graph());
    DecoderShape draft_shape = small_shape();
    draft_shape.layer_count = 1;
    const Graph draft = fuse(build_decoder(draft_shape, q4_form));
    const std::uint64_t budget = bytes_of(target, "attn") / 2;
    const ResidencyPlan plan = plan_residency({{&target, 1}, {&draft, 4}}, budget);
    CHECK(std::accumulate(plan.pinned_bytes.begin(), plan.pinned_bytes.end(), std::uint64_t{0}) <= budget);
    CHECK(plan.fraction(1) > plan.fraction(0));
    CHECK(plan.pinned_bytes[1] > 0);
    const Traffic without = predict(draft, {}, 128);
    const Traffic with = predict(draft, {}, 128, plan.pinned[1]);
    CHECK(with.pinned_weight_bytes == plan.pinned_bytes[1]);
    CHECK(with.weight_bytes + with.pinned_weight_bytes == without.weight_bytes);
    CHECK(to_text(plan).find("model 1") != std::string::npos);
}

TEST_CASE("projections come before the rest of their model; a budget of everything pins everything but the table") {
    const Graph graph = fuse(small_graph());
    const ResidencyPlan plan = plan_residency({{&graph, 1}}, bytes_of(graph, "attn_q.") + bytes_of(graph, "attn_k."));
    for (WeightId id = 0; id < graph.weights.size(); ++id) {
        CHECK((!plan.pinned[0][id] || graph.weights[id].name.find("attn_") != std::string::npos));
    }
    const ResidencyPlan all = plan_residency({{&graph, 1}}, 1ULL << 40);
    CHECK(all.fraction(0) == 1.0);
    CHECK(all.pinned_bytes[0] == bytes_of(graph, "") - bytes_of(graph, "token_embd"));
    CHECK(plan_residency({{&graph, 1}}, 0).pinned_bytes[0] == 0);
    CHECK_THROWS_AS(plan_residency({{nullptr, 1}}, 1), Error);
}

}  // namespace perceptd::graph

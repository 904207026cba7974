#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "decoder_shapes.hpp"
#include "graph/fuse.hpp"

namespace perceptd::graph {
namespace {

std::size_t count(const Graph& graph, OpKind kind) {
    return static_cast<std::size_t>(
        std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.kind == kind; }));
}

std::vector<OpKind> kinds_of_layer(const Graph& graph, std::uint32_t layer) {
    std::vector<OpKind> kinds;
    for (const Node& node : graph.nodes) {
        if (node.layer == layer) {
            kinds.push_back(node.kind);
        }
    }
    return kinds;
}

/// Every weight that the nodes name, sorted: fusion must lose and double none.
std::vector<std::string> used_weights(const Graph& graph) {
    std::vector<std::string> names;
    for (const Node& node : graph.nodes) {
        for (const WeightId id : node.weights) {
            names.push_back(graph.weights[id].name);
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace

TEST_CASE("the unfused decoder is one node per operation of the papers") {
    const Graph graph = small_graph();
    using enum OpKind;
    CHECK(kinds_of_layer(graph, 1) == std::vector<OpKind>{RmsNorm, Quantize, Linear,  Linear,   Linear,      Rope,
                                                          Rope,    KvWrite,  Scores,  Softmax,  WeightedSum, Quantize,
                                                          Linear,  Add,      RmsNorm, Quantize, Linear,      Linear,
                                                          SwiGlu,  Quantize, Linear,  Add});
    CHECK(graph.nodes.size() == 2 * 22 + 1 + 4);
    CHECK(graph.values[graph.logits].width == 320);
    CHECK(graph.values[graph.logits].rows == Rows::Selected);
}

TEST_CASE("fusion leaves five operations per layer and every weight in its place") {
    const Graph graph = small_graph();
    const Graph fused = fuse(graph);
    using enum OpKind;
    CHECK(kinds_of_layer(fused, 0) == std::vector<OpKind>{QkvRope, Attention, LinearAdd, GateUp, LinearAdd});
    CHECK(used_weights(fused) == used_weights(graph));
    CHECK(count(fused, NormQuantize) == 1);  // before the logits
}

TEST_CASE("each fusion can be switched off alone") {
    const Graph graph = small_graph();
    FusionOptions options;
    SECTION("query, key, value") {
        options.query_key_value = false;
        const Graph fused = fuse(graph, options);
        CHECK(count(fused, OpKind::QkvRope) == 0);
        CHECK(count(fused, OpKind::Rope) == 4);
        CHECK(count(fused, OpKind::GateUp) == 2);
    }
    SECTION("attention") {
        options.attention = false;
        const Graph fused = fuse(graph, options);
        CHECK(count(fused, OpKind::Attention) == 0);
        CHECK(count(fused, OpKind::Softmax) == 2);
        CHECK(count(fused, OpKind::QkvRope) == 2);
    }
    SECTION("feed forward") {
        options.feed_forward = false;
        const Graph fused = fuse(graph, options);
        CHECK(count(fused, OpKind::GateUp) == 0);
        CHECK(count(fused, OpKind::SwiGlu) == 2);
    }
    SECTION("residual") {
        options.residual = false;
        CHECK(count(fuse(graph, options), OpKind::LinearAdd) == 0);
    }
    SECTION("none") {
        const Graph same = fuse(graph, {false, false, false, false, false});
        CHECK(same.nodes == graph.nodes);
    }
}

TEST_CASE("an intermediate value that somebody else reads is kept") {
    Graph graph = small_graph();
    // A probe on the second layer's first norm: its fusion would take the value away.
    const auto norm = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                   [](const Node& node) { return node.layer == 1 && node.kind == OpKind::RmsNorm; });
    const ValueId probed = norm->outputs[0];
    const ValueId probe = graph.add_value("probe", 64);
    graph.nodes.push_back({.kind = OpKind::Rope, .inputs = {probed}, .outputs = {probe}});
    const Graph fused = fuse(graph);
    CHECK(count(fused, OpKind::QkvRope) == 1);
    CHECK(std::any_of(fused.nodes.begin(), fused.nodes.end(),
                      [&](const Node& node) { return node.kind == OpKind::RmsNorm && node.outputs[0] == probed; }));
}

TEST_CASE("float weights take float activations, and mixed layers stay unfused") {
    const auto form = [](std::string_view name, std::uint32_t rows, std::uint32_t cols) {
        if (name == "blk.0.attn_v.weight") {
            return WeightForm{std::uint64_t{2} * rows * cols, Format::F32};
        }
        return q4_form(name, rows, cols);
    };
    const Graph fused = fuse(build_decoder(small_shape(), form));
    CHECK(count(fused, OpKind::QkvRope) == 1);
    CHECK(std::any_of(fused.nodes.begin(), fused.nodes.end(), [&](const Node& node) {
        return node.kind == OpKind::Linear && fused.weights[node.weights[0]].name == "blk.0.attn_v.weight" &&
               fused.values[node.inputs[0]].format == Format::F32;
    }));
}

TEST_CASE("biases travel with the fused projection, the tied output reads the embedding table") {
    DecoderShape shape = small_shape();
    shape.qkv_bias = true;
    shape.tied_output = true;
    const Graph fused = fuse(build_decoder(shape, q4_form));
    const auto node = std::find_if(fused.nodes.begin(), fused.nodes.end(),
                                   [](const Node& each) { return each.kind == OpKind::QkvRope; });
    REQUIRE(node->weights.size() == 7);
    CHECK(fused.weights[node->weights[4]].name == "blk.0.attn_q.bias");
    CHECK(fused.weights[node->weights[6]].name == "blk.0.attn_v.bias");
    CHECK(fused.weights[fused.nodes.back().weights[0]].name == "token_embd.weight");
}

TEST_CASE("broken graphs and shapes are refused with the reason") {
    Graph graph = small_graph();
    SECTION("an input nobody writes") {
        graph.nodes.erase(graph.nodes.begin() + 3);
    }
    SECTION("a value that does not exist") {
        graph.nodes[5].inputs[0] = 100000;
    }
    SECTION("a weight that does not exist") {
        graph.nodes[3].weights[0] = 100000;
    }
    SECTION("widths that do not fit") {
        graph.weights[graph.nodes[3].weights[0]].cols = 63;
    }
    SECTION("nothing writes the logits") {
        graph.nodes.pop_back();
    }
    CHECK_THROWS_AS(check(graph), Error);
}

TEST_CASE("impossible decoder shapes are refused") {
    DecoderShape shape = small_shape();
    SECTION("zero") {
        shape.layer_count = 0;
    }
    SECTION("heads") {
        shape.attention.kv_heads = 3;
    }
    SECTION("odd head") {
        shape.attention.head_dim = 15;
    }
    CHECK_THROWS_AS(build_decoder(shape, q4_form), Error);
}

}  // namespace perceptd::graph

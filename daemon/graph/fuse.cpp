#include "graph/fuse.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace perceptd::graph {
namespace {

/// Who writes and who reads each value; node indices stay valid until sweep().
class Rewriter {
public:
    explicit Rewriter(Graph& graph) : graph_(graph), removed_(graph.nodes.size(), false) {
        writer_.assign(graph.values.size(), kNone);
        readers_.resize(graph.values.size());
        for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
            for (const ValueId output : graph.nodes[i].outputs) {
                writer_[output] = i;
            }
            for (const ValueId input : graph.nodes[i].inputs) {
                readers_[input].push_back(i);
            }
        }
    }

    [[nodiscard]] const Node& node(std::uint32_t index) const { return graph_.nodes[index]; }
    [[nodiscard]] const Graph& graph() const { return graph_; }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(graph_.nodes.size()); }
    [[nodiscard]] bool is(std::uint32_t index, OpKind kind) const {
        return index != kNone && !removed_[index] && graph_.nodes[index].kind == kind;
    }
    [[nodiscard]] std::uint32_t writer(ValueId value) const { return writer_[value]; }
    /// The only reader, or kNone. The logits are read outside the graph.
    [[nodiscard]] std::uint32_t only_reader(ValueId value) const {
        return readers_[value].size() == 1 && value != graph_.logits ? readers_[value][0] : kNone;
    }
    [[nodiscard]] const std::vector<std::uint32_t>& readers(ValueId value) const { return readers_[value]; }

    /// Puts `fused` in the place of node `at`; `parts` (which hold `at`) go.
    void replace(std::uint32_t at, Node fused, const std::vector<std::uint32_t>& parts) {
        for (const std::uint32_t part : parts) {
            removed_[part] = part != at;
        }
        fused.layer = graph_.nodes[at].layer;
        graph_.nodes[at] = std::move(fused);
    }

    void sweep() {
        std::vector<Node> kept;
        for (std::uint32_t i = 0; i < graph_.nodes.size(); ++i) {
            if (!removed_[i]) {
                kept.push_back(std::move(graph_.nodes[i]));
            }
        }
        graph_.nodes = std::move(kept);
    }

private:
    Graph& graph_;
    std::vector<bool> removed_;
    std::vector<std::uint32_t> writer_;
    std::vector<std::vector<std::uint32_t>> readers_;
};

/// A norm and, if its linear operations take Q8, the quantization behind it.
struct NormFeed {
    std::uint32_t norm = kNone;
    std::uint32_t quantize = kNone;
};

/// The norm that makes `value`, if nothing but `reader_count` linear operations reads its result.
std::optional<NormFeed> norm_feed(const Rewriter& in, ValueId value, std::size_t reader_count) {
    if (in.readers(value).size() != reader_count) {
        return std::nullopt;
    }
    NormFeed feed;
    feed.norm = in.writer(value);
    if (in.is(feed.norm, OpKind::Quantize)) {
        feed.quantize = feed.norm;
        const ValueId before = in.node(feed.quantize).inputs[0];
        feed.norm = in.only_reader(before) == feed.quantize ? in.writer(before) : kNone;
    }
    if (!in.is(feed.norm, OpKind::RmsNorm)) {
        return std::nullopt;
    }
    return feed;
}

void append_parts(const NormFeed& feed, std::vector<std::uint32_t>& parts) {
    parts.push_back(feed.norm);
    if (feed.quantize != kNone) {
        parts.push_back(feed.quantize);
    }
}

/// The linear operation behind a rotary embedding whose input nobody else reads.
std::uint32_t linear_before(const Rewriter& in, std::uint32_t rope) {
    const ValueId input = in.node(rope).inputs[0];
    const std::uint32_t linear = in.writer(input);
    return in.only_reader(input) == rope && in.is(linear, OpKind::Linear) ? linear : kNone;
}

void fuse_query_key_value(Rewriter& in) {
    for (std::uint32_t write = 0; write < in.size(); ++write) {
        if (!in.is(write, OpKind::KvWrite)) {
            continue;
        }
        const std::uint32_t key_rope = in.writer(in.node(write).inputs[0]);
        const std::uint32_t value = in.writer(in.node(write).inputs[1]);
        if (!in.is(key_rope, OpKind::Rope) || in.only_reader(in.node(write).inputs[0]) != write ||
            !in.is(value, OpKind::Linear) || in.only_reader(in.node(write).inputs[1]) != write) {
            continue;
        }
        const std::uint32_t key = linear_before(in, key_rope);
        if (key == kNone || in.node(key).inputs != in.node(value).inputs) {
            continue;
        }
        const ValueId fed = in.node(key).inputs[0];
        // The query's linear is the third reader of the same input, and a rotary embedding reads it.
        std::uint32_t query = kNone;
        for (const std::uint32_t reader : in.readers(fed)) {
            query = reader != key && reader != value ? reader : query;
        }
        const std::uint32_t query_rope =
            in.is(query, OpKind::Linear) ? in.only_reader(in.node(query).outputs[0]) : kNone;
        const auto feed = norm_feed(in, fed, 3);
        if (!in.is(query_rope, OpKind::Rope) || !feed) {
            continue;
        }
        const Node& norm = in.node(feed->norm);
        Node fused{.kind = OpKind::QkvRope,
                   .inputs = norm.inputs,
                   .outputs = in.node(query_rope).outputs,
                   .weights = norm.weights,
                   .epsilon = norm.epsilon};
        for (const std::size_t which : {std::size_t{0}, std::size_t{1}}) {  // matrices, then biases
            for (const std::uint32_t linear : {query, key, value}) {
                if (which < in.node(linear).weights.size()) {
                    fused.weights.push_back(in.node(linear).weights[which]);
                }
            }
        }
        std::vector<std::uint32_t> parts{query, key, value, query_rope, key_rope, write};
        append_parts(*feed, parts);
        in.replace(write, std::move(fused), parts);
    }
}

void fuse_attention(Rewriter& in) {
    for (std::uint32_t scores = 0; scores < in.size(); ++scores) {
        if (!in.is(scores, OpKind::Scores)) {
            continue;
        }
        const std::uint32_t softmax = in.only_reader(in.node(scores).outputs[0]);
        if (!in.is(softmax, OpKind::Softmax)) {
            continue;
        }
        const std::uint32_t sum = in.only_reader(in.node(softmax).outputs[0]);
        if (!in.is(sum, OpKind::WeightedSum)) {
            continue;
        }
        std::vector<std::uint32_t> parts{scores, softmax, sum};
        std::uint32_t last = sum;
        const std::uint32_t quantize = in.only_reader(in.node(sum).outputs[0]);
        if (in.is(quantize, OpKind::Quantize)) {
            parts.push_back(quantize);
            last = quantize;
        }
        Node fused{.kind = OpKind::Attention, .inputs = in.node(scores).inputs, .outputs = in.node(last).outputs};
        in.replace(last, std::move(fused), parts);
    }
}

void fuse_feed_forward(Rewriter& in) {
    for (std::uint32_t swiglu = 0; swiglu < in.size(); ++swiglu) {
        if (!in.is(swiglu, OpKind::SwiGlu)) {
            continue;
        }
        std::array<std::uint32_t, 2> linears{};
        bool good = true;
        for (std::size_t i = 0; i < 2; ++i) {
            const ValueId input = in.node(swiglu).inputs[i];
            linears[i] = in.writer(input);
            good = good && in.is(linears[i], OpKind::Linear) && in.only_reader(input) == swiglu &&
                   in.node(linears[i]).weights.size() == 1;
        }
        if (!good || in.node(linears[0]).inputs != in.node(linears[1]).inputs) {
            continue;
        }
        const auto feed = norm_feed(in, in.node(linears[0]).inputs[0], 2);
        if (!feed) {
            continue;
        }
        std::vector<std::uint32_t> parts{swiglu, linears[0], linears[1]};
        append_parts(*feed, parts);
        std::uint32_t last = swiglu;
        const std::uint32_t quantize = in.only_reader(in.node(swiglu).outputs[0]);
        if (in.is(quantize, OpKind::Quantize)) {
            parts.push_back(quantize);
            last = quantize;
        }
        const Node& norm = in.node(feed->norm);
        Node fused{.kind = OpKind::GateUp,
                   .inputs = norm.inputs,
                   .outputs = in.node(last).outputs,
                   .weights = {norm.weights[0], in.node(linears[0]).weights[0], in.node(linears[1]).weights[0]},
                   .epsilon = norm.epsilon};
        in.replace(last, std::move(fused), parts);
    }
}

void fuse_residual(Rewriter& in) {
    for (std::uint32_t add = 0; add < in.size(); ++add) {
        if (!in.is(add, OpKind::Add)) {
            continue;
        }
        const ValueId change = in.node(add).inputs[1];
        const std::uint32_t linear = in.writer(change);
        if (!in.is(linear, OpKind::Linear) || in.only_reader(change) != add) {
            continue;
        }
        Node fused{.kind = OpKind::LinearAdd,
                   .inputs = {in.node(linear).inputs[0], in.node(add).inputs[0]},
                   .outputs = in.node(add).outputs,
                   .weights = in.node(linear).weights};
        in.replace(add, std::move(fused), {linear, add});
    }
}

void fuse_norm(Rewriter& in) {
    for (std::uint32_t quantize = 0; quantize < in.size(); ++quantize) {
        if (!in.is(quantize, OpKind::Quantize)) {
            continue;
        }
        const ValueId input = in.node(quantize).inputs[0];
        const std::uint32_t norm = in.writer(input);
        if (!in.is(norm, OpKind::RmsNorm) || in.only_reader(input) != quantize) {
            continue;
        }
        Node fused = in.node(norm);
        fused.kind = OpKind::NormQuantize;
        fused.outputs = in.node(quantize).outputs;
        in.replace(quantize, std::move(fused), {norm, quantize});
    }
}

}  // namespace

Graph fuse(Graph graph, const FusionOptions& options) {
    const std::array<std::pair<bool, void (*)(Rewriter&)>, 5> passes{{
        {options.query_key_value, fuse_query_key_value},
        {options.attention, fuse_attention},
        {options.feed_forward, fuse_feed_forward},
        {options.residual, fuse_residual},
        {options.norm, fuse_norm},
    }};
    for (const auto& [wanted, pass] : passes) {
        if (wanted) {
            Rewriter rewriter(graph);
            pass(rewriter);
            rewriter.sweep();
        }
    }
    check(graph);
    return graph;
}

}  // namespace perceptd::graph

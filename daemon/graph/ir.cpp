#include "graph/ir.hpp"

#include <array>

#include "base/error.hpp"

namespace perceptd::graph {
namespace {

/// What check() demands of a kind.
struct Rule {
    std::string_view name;
    std::uint8_t inputs;
    std::uint8_t outputs;
    std::uint8_t weights_min;
    std::uint8_t weights_max;
};

constexpr std::array kRules{
    Rule{"embed", 0, 1, 1, 1},         Rule{"select_rows", 1, 1, 0, 0}, Rule{"rms_norm", 1, 1, 1, 1},
    Rule{"quantize", 1, 1, 0, 0},      Rule{"linear", 1, 1, 1, 2},      Rule{"rope", 1, 1, 0, 0},
    Rule{"kv_write", 2, 0, 0, 0},      Rule{"scores", 1, 1, 0, 0},      Rule{"softmax", 1, 1, 0, 0},
    Rule{"weighted_sum", 1, 1, 0, 0},  Rule{"swiglu", 2, 1, 0, 0},      Rule{"add", 2, 1, 0, 0},
    Rule{"norm_quantize", 1, 1, 1, 1}, Rule{"qkv_rope", 1, 1, 4, 7},    Rule{"attention", 1, 1, 0, 0},
    Rule{"linear_add", 2, 1, 1, 2},    Rule{"gate_up", 1, 1, 3, 3},
};

const Rule& rule_of(OpKind kind) noexcept {
    return kRules[static_cast<std::size_t>(kind)];
}

[[noreturn]] void refuse(const Graph& graph, std::size_t index, const std::string& reason) {
    const Node& node = graph.nodes[index];
    throw Error(ErrorCode::InvalidArgument,
                "graph: node " + std::to_string(index) + " (" + std::string(name_of(node.kind)) + "): " + reason);
}

void check_linear(const Graph& graph, std::size_t index) {
    const Node& node = graph.nodes[index];
    const Weight& matrix = graph.weights[node.weights[0]];
    const Value& input = graph.values[node.inputs[0]];
    if (input.width != matrix.cols || graph.values[node.outputs[0]].width != matrix.rows) {
        refuse(graph, index, "'" + matrix.name + "' does not fit its input or output");
    }
    if (input.format != matrix.activation) {
        refuse(graph, index, "'" + matrix.name + "' takes another form of input");
    }
}

}  // namespace

std::uint64_t row_bytes(Format format, std::uint32_t width) noexcept {
    if (format == Format::F32) {
        return std::uint64_t{4} * width;
    }
    const std::uint64_t groups = (std::uint64_t{width} + kQ8Group - 1) / kQ8Group;
    return groups * (kQ8Group + sizeof(float) + sizeof(std::int32_t));
}

std::string_view name_of(OpKind kind) noexcept {
    return rule_of(kind).name;
}

ValueId Graph::add_value(std::string name, std::uint32_t width, Format format, Rows rows) {
    values.push_back({std::move(name), width, format, rows});
    return static_cast<ValueId>(values.size() - 1);
}

void check(const Graph& graph) {
    std::vector<bool> written(graph.values.size(), false);
    for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
        const Node& node = graph.nodes[index];
        const Rule& rule = rule_of(node.kind);
        if (node.inputs.size() != rule.inputs || node.outputs.size() != rule.outputs ||
            node.weights.size() < rule.weights_min || node.weights.size() > rule.weights_max) {
            refuse(graph, index, "wrong number of inputs, outputs or weights");
        }
        for (const WeightId weight : node.weights) {
            if (weight >= graph.weights.size()) {
                refuse(graph, index, "a weight that does not exist");
            }
        }
        for (const ValueId input : node.inputs) {
            if (input >= graph.values.size() || !written[input]) {
                refuse(graph, index, "an input that no earlier node writes");
            }
        }
        for (const ValueId output : node.outputs) {
            if (output >= graph.values.size() || written[output]) {
                refuse(graph, index, "an output that does not exist or is written twice");
            }
            written[output] = true;
        }
        if (node.kind == OpKind::Linear || node.kind == OpKind::LinearAdd) {
            check_linear(graph, index);
        }
    }
    if (graph.logits >= graph.values.size() || !written[graph.logits]) {
        throw Error(ErrorCode::InvalidArgument, "graph: nothing writes the logits");
    }
}

std::string to_text(const Graph& graph) {
    std::string text;
    for (const Node& node : graph.nodes) {
        text += node.layer == kNone ? std::string("-") : std::to_string(node.layer);
        text += ' ';
        text += name_of(node.kind);
        const auto list = [&](const char* separator, const auto& ids, const auto& from) {
            for (const auto id : ids) {
                text += separator + from[id].name;
            }
        };
        list(" ", node.inputs, graph.values);
        list(" @", node.weights, graph.weights);
        text += " ->";
        list(" ", node.outputs, graph.values);
        text += '\n';
    }
    return text;
}

}  // namespace perceptd::graph

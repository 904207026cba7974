#include "graph/traffic.hpp"

namespace perceptd::graph {

Traffic& Traffic::operator+=(const Traffic& other) noexcept {
    weight_bytes += other.weight_bytes;
    pinned_weight_bytes += other.pinned_weight_bytes;
    kv_read_bytes += other.kv_read_bytes;
    kv_write_bytes += other.kv_write_bytes;
    return *this;
}

Traffic predict(const Graph& graph, const Node& node, const PassShape& pass, std::uint64_t kv_position_bytes,
                const std::vector<bool>& pinned) {
    Traffic traffic;
    for (const WeightId id : node.weights) {
        const Weight& weight = graph.weights[id];
        std::uint64_t bytes = weight.bytes;
        if (node.kind == OpKind::Embed) {
            bytes = weight.bytes / weight.rows * (pass.tokens - pass.soft_tokens);
        }
        const bool near = id < pinned.size() && pinned[id];
        (near ? traffic.pinned_weight_bytes : traffic.weight_bytes) += bytes;
    }
    const std::uint64_t seen = std::uint64_t{pass.positions_before} + pass.tokens;
    switch (node.kind) {
        case OpKind::KvWrite:
        case OpKind::QkvRope: traffic.kv_write_bytes = kv_position_bytes * pass.tokens; break;
        case OpKind::Attention: traffic.kv_read_bytes = kv_position_bytes * seen; break;
        // Unfused attention reads the keys in one operation and the values in another.
        case OpKind::Scores:
        case OpKind::WeightedSum: traffic.kv_read_bytes = kv_position_bytes / 2 * seen; break;
        default: break;
    }
    return traffic;
}

Traffic predict(const Graph& graph, const PassShape& pass, std::uint64_t kv_position_bytes,
                const std::vector<bool>& pinned) {
    Traffic total;
    for (const Node& node : graph.nodes) {
        total += predict(graph, node, pass, kv_position_bytes, pinned);
    }
    return total;
}

}  // namespace perceptd::graph

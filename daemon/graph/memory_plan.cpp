#include "graph/memory_plan.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace perceptd::graph {
namespace {

/// One buffer: a value, or several that share it in place.
struct Buffer {
    std::uint64_t size_bytes = 0;
    std::uint32_t first = kNone;  // node that writes it
    std::uint32_t last = 0;       // last node that touches it
    std::uint64_t offset_bytes = 0;
};

std::uint64_t rounded(std::uint64_t bytes) {
    return (bytes + kPlacementAlignmentBytes - 1) / kPlacementAlignmentBytes * kPlacementAlignmentBytes;
}

std::uint64_t size_of(const Value& value, const PassLimits& limits) {
    std::uint64_t row = row_bytes(value.format, value.width);
    std::uint64_t rows = value.rows == Rows::Selected ? limits.logit_rows_max : limits.tokens_max;
    if (value.rows == Rows::Score) {
        rows *= limits.positions_max;
    }
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(row, rows, &bytes) || bytes > (std::uint64_t{1} << 46)) {
        throw Error(ErrorCode::InvalidArgument, "memory plan: '" + value.name + "' would take more than 64 TiB");
    }
    return rounded(bytes);
}

/// The input that `node` may overwrite with its output, or kNone.
ValueId in_place_input(const Node& node) {
    switch (node.kind) {
        case OpKind::Add:
        case OpKind::Rope:
        case OpKind::Softmax: return node.inputs[0];
        case OpKind::LinearAdd: return node.inputs[1];
        default: return kNone;
    }
}

void place(std::vector<Buffer>& buffers) {
    std::vector<std::uint32_t> order(buffers.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return buffers[a].size_bytes > buffers[b].size_bytes; });
    std::vector<std::uint32_t> placed;
    for (const std::uint32_t index : order) {
        Buffer& buffer = buffers[index];
        if (buffer.size_bytes == 0) {
            continue;
        }
        std::vector<const Buffer*> rivals;
        for (const std::uint32_t other : placed) {
            if (buffers[other].first <= buffer.last && buffer.first <= buffers[other].last) {
                rivals.push_back(&buffers[other]);
            }
        }
        std::sort(rivals.begin(), rivals.end(),
                  [](const Buffer* a, const Buffer* b) { return a->offset_bytes < b->offset_bytes; });
        std::uint64_t offset = 0;
        for (const Buffer* const rival : rivals) {
            if (offset + buffer.size_bytes <= rival->offset_bytes) {
                break;
            }
            offset = std::max(offset, rival->offset_bytes + rival->size_bytes);
        }
        buffer.offset_bytes = offset;
        placed.push_back(index);
    }
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const PassLimits& limits) {
    if (limits.tokens_max == 0 || limits.logit_rows_max == 0 || limits.positions_max == 0) {
        throw Error(ErrorCode::InvalidArgument, "memory plan: a pass has at least one token, row and position");
    }
    std::vector<std::uint32_t> last_use(graph.values.size(), 0);
    for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
        for (const ValueId input : graph.nodes[i].inputs) {
            last_use[input] = i;
        }
    }
    const auto node_count = static_cast<std::uint32_t>(graph.nodes.size());
    last_use[graph.logits] = node_count;  // read after the run

    std::vector<Buffer> buffers;
    std::vector<std::uint32_t> buffer_of(graph.values.size(), kNone);
    for (std::uint32_t i = 0; i < node_count; ++i) {
        const Node& node = graph.nodes[i];
        for (const ValueId output : node.outputs) {
            const ValueId shared = in_place_input(node);
            const std::uint64_t bytes = size_of(graph.values[output], limits);
            if (shared != kNone && last_use[shared] == i && size_of(graph.values[shared], limits) == bytes) {
                buffer_of[output] = buffer_of[shared];
            } else {
                buffer_of[output] = static_cast<std::uint32_t>(buffers.size());
                buffers.push_back({.size_bytes = bytes, .first = i, .last = i});
            }
            Buffer& buffer = buffers[buffer_of[output]];
            buffer.last = std::max({buffer.last, i, last_use[output]});
        }
    }
    place(buffers);

    MemoryPlan plan;
    plan.placements.resize(graph.values.size());
    for (ValueId value = 0; value < graph.values.size(); ++value) {
        if (buffer_of[value] != kNone) {
            const Buffer& buffer = buffers[buffer_of[value]];
            plan.placements[value] = {buffer.offset_bytes, buffer.size_bytes};
            plan.workspace_bytes = std::max(plan.workspace_bytes, buffer.offset_bytes + buffer.size_bytes);
        }
    }
    for (std::uint32_t i = 0; i <= node_count; ++i) {
        std::uint64_t live_bytes = 0;
        for (const Buffer& buffer : buffers) {
            live_bytes += buffer.first <= i && i <= buffer.last ? buffer.size_bytes : 0;
        }
        plan.largest_live_bytes = std::max(plan.largest_live_bytes, live_bytes);
    }
    return plan;
}

}  // namespace perceptd::graph

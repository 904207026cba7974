#include "graph/residency.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/error.hpp"

namespace perceptd::graph {
namespace {

struct Entry {
    std::size_t candidate = 0;
    WeightId weight = 0;
    std::uint64_t bytes = 0;
    double passes_per_cycle = 0;
    bool projection = false;
};

bool is_projection(const std::string& name) {
    return name.find(".attn_q.") != std::string::npos || name.find(".attn_k.") != std::string::npos ||
           name.find(".attn_v.") != std::string::npos || name.find(".attn_output.") != std::string::npos;
}

/// The weights that a pass reads as a whole, in execution order, each once.
std::vector<Entry> entries_of(const ResidencyCandidate& candidate, std::size_t index) {
    const Graph& graph = *candidate.graph;
    std::vector<Entry> entries;
    std::vector<bool> seen(graph.weights.size(), false);
    for (const Node& node : graph.nodes) {
        if (node.kind == OpKind::Embed) {
            continue;
        }
        for (const WeightId id : node.weights) {
            if (!seen[id]) {
                seen[id] = true;
                entries.push_back({index, id, graph.weights[id].bytes, candidate.passes_per_cycle,
                                   is_projection(graph.weights[id].name)});
            }
        }
    }
    return entries;
}

}  // namespace

double ResidencyPlan::fraction(std::size_t candidate) const noexcept {
    return weight_bytes[candidate] == 0
               ? 0
               : static_cast<double>(pinned_bytes[candidate]) / static_cast<double>(weight_bytes[candidate]);
}

ResidencyPlan plan_residency(const std::vector<ResidencyCandidate>& candidates, std::uint64_t budget_bytes) {
    ResidencyPlan plan;
    plan.budget_bytes = budget_bytes;
    plan.pinned_bytes.assign(candidates.size(), 0);
    plan.weight_bytes.assign(candidates.size(), 0);
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (candidates[i].graph == nullptr || !(candidates[i].passes_per_cycle >= 0)) {
            throw Error(ErrorCode::InvalidArgument, "residency: a candidate needs a graph and a rate of at least 0");
        }
        plan.pinned.emplace_back(candidates[i].graph->weights.size(), false);
        for (const Entry& entry : entries_of(candidates[i], i)) {
            plan.weight_bytes[i] += entry.bytes;
            entries.push_back(entry);
        }
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return a.passes_per_cycle != b.passes_per_cycle ? a.passes_per_cycle > b.passes_per_cycle
                                                        : a.projection && !b.projection;
    });
    std::uint64_t left_bytes = budget_bytes;
    for (const Entry& entry : entries) {
        if (entry.bytes <= left_bytes && entry.passes_per_cycle > 0) {
            left_bytes -= entry.bytes;
            plan.pinned[entry.candidate][entry.weight] = true;
            plan.pinned_bytes[entry.candidate] += entry.bytes;
            plan.saved_bytes_per_cycle += static_cast<double>(entry.bytes) * entry.passes_per_cycle;
        }
    }
    return plan;
}

std::string to_text(const ResidencyPlan& plan) {
    const std::uint64_t pinned_bytes =
        std::accumulate(plan.pinned_bytes.begin(), plan.pinned_bytes.end(), std::uint64_t{0});
    std::string text =
        "pinned " + std::to_string(pinned_bytes) + " of " + std::to_string(plan.budget_bytes) + " bytes\n";
    for (std::size_t i = 0; i < plan.pinned.size(); ++i) {
        char line[128];
        std::snprintf(line, sizeof(line), "model %zu: %llu of %llu weight bytes (%.1f %%)\n", i,
                      static_cast<unsigned long long>(plan.pinned_bytes[i]),
                      static_cast<unsigned long long>(plan.weight_bytes[i]), 100 * plan.fraction(i));
        text += line;
    }
    return text;
}

}  // namespace perceptd::graph

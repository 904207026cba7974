// Says how many bytes a pass moves before it runs: weights once, the cache as far as it is read and written.
// Owns nothing. Never an estimate: the executor counts the same quantities while it runs, and the numbers are equal
// (algorithms.md section 9, B(K)).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir.hpp"

namespace perceptd::graph {

/// One pass over one sequence.
struct PassShape {
    std::uint32_t tokens = 1;
    std::uint32_t soft_tokens = 0;       ///< of `tokens`: rows that come as embeddings and read no table
    std::uint32_t positions_before = 0;  ///< already in the cache
    std::uint32_t logit_rows = 1;
};

/// Bytes, each by its cause.
struct Traffic {
    std::uint64_t weight_bytes = 0;
    std::uint64_t pinned_weight_bytes = 0;  ///< read from memory that the residency plan pins near the processor
    std::uint64_t kv_read_bytes = 0;
    std::uint64_t kv_write_bytes = 0;

    [[nodiscard]] std::uint64_t dram_bytes() const noexcept { return weight_bytes + kv_read_bytes + kv_write_bytes; }
    Traffic& operator+=(const Traffic& other) noexcept;
    [[nodiscard]] bool operator==(const Traffic&) const = default;
};

/// `kv_position_bytes`: key and value of one position in one layer. `pinned`: by WeightId, empty = none.
/// A table that is only gathered counts its gathered rows. Keys and values are read once per pass, whatever its width.
[[nodiscard]] Traffic predict(const Graph& graph, const Node& node, const PassShape& pass,
                              std::uint64_t kv_position_bytes, const std::vector<bool>& pinned = {});
/// The sum over all nodes.
[[nodiscard]] Traffic predict(const Graph& graph, const PassShape& pass, std::uint64_t kv_position_bytes,
                              const std::vector<bool>& pinned = {});

}  // namespace perceptd::graph

// Attention over paged keys and values: online softmax over tiles of 32 *positions* counted from the start of the
// sequence, so a query gives the same bits alone, in a prefill, in a chain or in a tree of drafts. K and V are read
// once per pass and KV head for up to kQueriesPerPiece tokens. Owns nothing.
//
// A tree is given as paths, not as a mask: for each query the cache slots of its ancestors, by position. Masked-out
// neighbours then never enter the sums, which is what makes a verified branch bit-equal to plain decoding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/activations.hpp"
#include "engine/kernels.hpp"
#include "engine/kv_pages.hpp"
#include "engine/worker_team.hpp"
#include "graph/traffic.hpp"

namespace perceptd::engine {

inline constexpr std::size_t kQueriesPerPiece = graph::kAttentionQueryTile;  // what the planner predicts by
inline constexpr std::size_t kMaxQueryGroup = 64;                            ///< query heads per KV head

/// The tail of the cache as a tree: positions below `base` are common to all queries (slot = position). Query i sits at
/// position base + depths[i]; its ancestor at position base + j (itself included) is slots[i * stride + j].
struct TreePaths {
    std::size_t base = 0;
    const std::uint32_t* depths = nullptr;
    const std::uint32_t* slots = nullptr;
    std::size_t stride = 0;
};

/// One attention operation: `tokens` queries of `query_heads` heads against one layer of the cache.
struct AttentionTask {
    FloatView queries;     ///< tokens x (query_heads * head_dimension), rotated
    MutableFloatView out;  ///< the same shape
    std::size_t tokens = 0;
    std::size_t query_heads = 0;  ///< a multiple of kv.shape.kv_heads
    std::size_t layer = 0;
    std::size_t first_position = 0;  ///< of query 0; query i is at first_position + i (no tree)
    std::size_t visible_count = 0;   ///< not 0: every query sees exactly slots [0, visible_count) (encoders)
    std::size_t window = 0;          ///< not 0: only the last `window` positions are seen
    float score_scale = 1.0F;
    KvView kv;
    const TreePaths* tree = nullptr;
};

/// Positions [begin, end) that one query sees.
struct VisibleRange {
    std::size_t begin;
    std::size_t end;
};

/// What query `token` of `task` sees.
VisibleRange visible_range_of(const AttentionTask& task, std::size_t token) noexcept;

struct AttentionPiece {
    const AttentionTask* task = nullptr;
    std::size_t kv_head = 0;
    std::size_t token_begin = 0;
    std::size_t token_end = 0;  ///< at most kQueriesPerPiece more
};

/// All workers call it; pieces (KV head x 16 tokens) are shared out. No barrier at its end. Counts the KV rows
/// that a piece sees once per piece.
void attention(Worker& worker, const KernelTable& kernels, const AttentionTask& task) noexcept;

}  // namespace perceptd::engine

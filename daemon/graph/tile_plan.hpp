// Chooses how an operation is cut into tiles for a device with a small fast memory (TCM) that is filled by DMA.
// Owns nothing. Never assumes that fusion pays: it costs every way of cutting and takes the cheapest
// (algorithms.md section 6: full fusion of a feed-forward block can move 3.7 times the bytes of the unfused one).
#pragma once

#include <cstdint>
#include <optional>

namespace perceptd::graph {

struct TileMachine {
    std::uint64_t tcm_bytes = 0;
    double bandwidth_bytes_per_s = 1e10;
    double macs_per_s = 1e12;
    double dma_start_s = 1e-6;
};

/// Tokens x (gate, up: hidden -> ffn; down: ffn -> hidden), weights in groups of 32 along the input.
struct FeedForwardShape {
    std::uint32_t tokens = 1;
    std::uint32_t hidden_width = 0;             ///< multiple of 32
    std::uint32_t ffn_width = 0;                ///< multiple of 32
    std::uint32_t weight_group_bytes = 18;      ///< 32 weights with their scales
    std::uint32_t activation_group_bytes = 40;  ///< 32 activations with scale and sum (Format::Q8)
};

/// One matrix product: tokens x inner -> tokens x outer.
struct LinearShape {
    std::uint32_t tokens = 1;
    std::uint32_t inner_width = 0;
    std::uint32_t outer_width = 0;
    std::uint64_t weight_row_bytes = 0;  ///< one row of the matrix: inner_width weights
    std::uint64_t input_row_bytes = 0;
    std::uint64_t output_row_bytes = 0;  ///< of `outer_width` elements
};

/// The queries of one key-value head against its cache.
struct AttentionTileShape {
    std::uint32_t query_rows = 1;  ///< tokens x query heads per key-value head
    std::uint32_t positions = 1;
    std::uint32_t head_dim = 64;
    std::uint32_t query_element_bytes = 1;
    std::uint32_t kv_element_bytes = 1;
};

/// What a way of cutting costs; the executor's counters must say the same.
struct TileCost {
    std::uint64_t dram_bytes = 0;
    std::uint64_t dma_count = 0;
    std::uint64_t footprint_bytes = 0;
    std::uint64_t macs = 0;

    [[nodiscard]] double seconds(const TileMachine& machine) const noexcept;
};

/// Which loop is outside: that operand is read once, the other once per outer tile.
enum class LoopOrder : std::uint8_t { TokenOuter, WeightOuter };

struct LinearTiling {
    LoopOrder order = LoopOrder::TokenOuter;
    std::uint32_t token_tile = 1;
    std::uint32_t row_tile = 1;
    TileCost cost;
};

struct FeedForwardTiling {
    bool fused = false;
    std::uint32_t token_tile = 1;  ///< fused
    std::uint32_t ffn_tile = 32;   ///< fused; a multiple of 32
    LinearTiling gate_up;          ///< unfused: gate and up as one matrix of 2 x ffn rows
    LinearTiling down;             ///< unfused
    TileCost cost;
};

struct AttentionTiling {
    bool fused = false;
    std::uint32_t query_tile = 1;     ///< Br
    std::uint32_t position_tile = 1;  ///< Bc
    TileCost cost;
};

/// The cost of one given tiling; nothing is chosen here.
[[nodiscard]] TileCost cost_of(const LinearShape& shape, LoopOrder order, std::uint32_t token_tile,
                               std::uint32_t row_tile) noexcept;
[[nodiscard]] TileCost cost_of_fused(const FeedForwardShape& shape, std::uint32_t token_tile,
                                     std::uint32_t ffn_tile) noexcept;
[[nodiscard]] TileCost cost_of_fused(const AttentionTileShape& shape, std::uint32_t query_tile,
                                     std::uint32_t position_tile) noexcept;
/// Scores to DRAM, softmax there and back, scores again for the weighted sum.
[[nodiscard]] TileCost cost_of_unfused(const AttentionTileShape& shape, std::uint32_t query_tile,
                                       std::uint32_t position_tile) noexcept;

/// Exhaustive: fewest bytes, then least time, then smallest footprint. Nothing when not even the smallest tile fits.
/// Throws Error(InvalidArgument) for zero sizes and widths that are no multiple of 32.
[[nodiscard]] std::optional<LinearTiling> plan_linear(const LinearShape& shape, const TileMachine& machine);
[[nodiscard]] std::optional<FeedForwardTiling> plan_feed_forward(const FeedForwardShape& shape,
                                                                 const TileMachine& machine);
[[nodiscard]] std::optional<AttentionTiling> plan_attention(const AttentionTileShape& shape,
                                                            const TileMachine& machine);

/// The linear operations of the unfused block.
[[nodiscard]] LinearShape gate_up_of(const FeedForwardShape& shape) noexcept;
[[nodiscard]] LinearShape down_of(const FeedForwardShape& shape) noexcept;

}  // namespace perceptd::graph

#include "graph/tile_plan.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"

namespace perceptd::graph {
namespace {

constexpr std::uint64_t kGroup = 32;
constexpr std::uint64_t kAccumulatorBytes = 4;

std::uint64_t tiles(std::uint64_t whole, std::uint64_t tile) noexcept {
    return (whole + tile - 1) / tile;
}

/// The tile sizes worth a look: for every number of tiles the smallest size (in units) that gives it. A larger tile
/// with the same number of tiles moves the same bytes and needs more room.
std::vector<std::uint32_t> tile_sizes(std::uint32_t whole_units) {
    std::vector<std::uint32_t> sizes;
    for (std::uint32_t count = 1; count <= whole_units;) {
        const auto size = static_cast<std::uint32_t>(tiles(whole_units, count));
        sizes.push_back(size);
        if (size == 1) {
            break;
        }
        count = static_cast<std::uint32_t>(tiles(whole_units, size - 1));
    }
    return sizes;
}

bool better(const TileCost& a, const TileCost& b, const TileMachine& machine) noexcept {
    if (a.dram_bytes != b.dram_bytes) {
        return a.dram_bytes < b.dram_bytes;
    }
    const double a_s = a.seconds(machine);
    const double b_s = b.seconds(machine);
    return a_s != b_s ? a_s < b_s : a.footprint_bytes < b.footprint_bytes;
}

/// Takes `tiling` if it fits and beats what is there.
template <typename Tiling>
void offer(std::optional<Tiling>& best, const Tiling& tiling, const TileMachine& machine) {
    if (tiling.cost.footprint_bytes <= machine.tcm_bytes && (!best || better(tiling.cost, best->cost, machine))) {
        best = tiling;
    }
}

void require(bool good, const char* reason) {
    if (!good) {
        throw Error(ErrorCode::InvalidArgument, reason);
    }
}

void check_machine(const TileMachine& machine) {
    require(machine.bandwidth_bytes_per_s > 0 && machine.macs_per_s > 0 && machine.dma_start_s >= 0,
            "tile plan: bandwidth and arithmetic rate must be above 0");
}

TileCost sum_of(const TileCost& a, const TileCost& b) noexcept {
    return {.dram_bytes = a.dram_bytes + b.dram_bytes,
            .dma_count = a.dma_count + b.dma_count,
            .footprint_bytes = std::max(a.footprint_bytes, b.footprint_bytes),
            .macs = a.macs + b.macs};
}

}  // namespace

double TileCost::seconds(const TileMachine& machine) const noexcept {
    return std::max(static_cast<double>(dram_bytes) / machine.bandwidth_bytes_per_s,
                    static_cast<double>(macs) / machine.macs_per_s) +
           static_cast<double>(dma_count) * machine.dma_start_s;
}

TileCost cost_of(const LinearShape& shape, LoopOrder order, std::uint32_t token_tile, std::uint32_t row_tile) noexcept {
    const std::uint64_t token_tiles = tiles(shape.tokens, token_tile);
    const std::uint64_t row_tiles = tiles(shape.outer_width, row_tile);
    const std::uint64_t input_bytes = shape.input_row_bytes * shape.tokens;
    const std::uint64_t weight_bytes = shape.weight_row_bytes * shape.outer_width;
    const std::uint64_t output_bytes = shape.output_row_bytes * shape.tokens;
    const bool token_outer = order == LoopOrder::TokenOuter;
    TileCost cost;
    cost.dram_bytes = output_bytes +
                      (token_outer ? input_bytes + weight_bytes * token_tiles : weight_bytes + input_bytes * row_tiles);
    cost.dma_count = token_tiles * row_tiles                    // results
                     + (token_outer ? token_tiles : row_tiles)  // the outer operand
                     + token_tiles * row_tiles;                 // the inner operand
    const std::uint64_t outer = token_outer ? 1 : 2;            // what the inner loop walks over is double-buffered
    const std::uint64_t inner = token_outer ? 2 : 1;
    cost.footprint_bytes = outer * shape.input_row_bytes * token_tile + inner * shape.weight_row_bytes * row_tile +
                           kAccumulatorBytes * token_tile * row_tile;
    cost.macs = std::uint64_t{shape.tokens} * shape.inner_width * shape.outer_width;
    return cost;
}

LinearShape gate_up_of(const FeedForwardShape& shape) noexcept {
    // The epilogue multiplies the pairs, so what leaves is one quantized row of ffn_width.
    return {.tokens = shape.tokens,
            .inner_width = shape.hidden_width,
            .outer_width = 2 * shape.ffn_width,
            .weight_row_bytes = shape.hidden_width / kGroup * shape.weight_group_bytes,
            .input_row_bytes = shape.hidden_width / kGroup * shape.activation_group_bytes,
            .output_row_bytes = shape.ffn_width / kGroup * shape.activation_group_bytes};
}

LinearShape down_of(const FeedForwardShape& shape) noexcept {
    return {.tokens = shape.tokens,
            .inner_width = shape.ffn_width,
            .outer_width = shape.hidden_width,
            .weight_row_bytes = shape.ffn_width / kGroup * shape.weight_group_bytes,
            .input_row_bytes = shape.ffn_width / kGroup * shape.activation_group_bytes,
            .output_row_bytes = shape.hidden_width / kGroup * shape.activation_group_bytes};
}

TileCost cost_of_fused(const FeedForwardShape& shape, std::uint32_t token_tile, std::uint32_t ffn_tile) noexcept {
    const std::uint64_t token_tiles = tiles(shape.tokens, token_tile);
    const std::uint64_t ffn_tiles = tiles(shape.ffn_width, ffn_tile);
    const std::uint64_t hidden_groups = shape.hidden_width / kGroup;
    const std::uint64_t ffn_groups = shape.ffn_width / kGroup;
    const std::uint64_t tile_groups = ffn_tile / kGroup;
    const std::uint64_t row_bytes = hidden_groups * shape.activation_group_bytes;
    // Three matrices of hidden x ffn, all in groups of 32.
    const std::uint64_t weight_bytes = 3 * hidden_groups * ffn_groups * kGroup * shape.weight_group_bytes;
    const std::uint64_t weight_tile_bytes = 3 * hidden_groups * tile_groups * kGroup * shape.weight_group_bytes;
    TileCost cost;
    cost.dram_bytes = 2 * row_bytes * shape.tokens + token_tiles * weight_bytes;
    cost.dma_count = token_tiles * (2 + 3 * ffn_tiles);
    cost.footprint_bytes = token_tile * (row_bytes + kAccumulatorBytes * shape.hidden_width) + 2 * weight_tile_bytes +
                           token_tile * (2 * kAccumulatorBytes * ffn_tile + tile_groups * shape.activation_group_bytes);
    cost.macs = std::uint64_t{3} * shape.tokens * shape.hidden_width * shape.ffn_width;
    return cost;
}

TileCost cost_of_fused(const AttentionTileShape& shape, std::uint32_t query_tile,
                       std::uint32_t position_tile) noexcept {
    const std::uint64_t query_tiles = tiles(shape.query_rows, query_tile);
    const std::uint64_t position_tiles = tiles(shape.positions, position_tile);
    const std::uint64_t dim = shape.head_dim;
    TileCost cost;
    cost.dram_bytes = 2 * shape.query_rows * dim * shape.query_element_bytes +
                      query_tiles * 2 * shape.positions * dim * shape.kv_element_bytes;
    cost.dma_count = query_tiles * (2 + 2 * position_tiles);
    cost.footprint_bytes = query_tile * dim * shape.query_element_bytes +
                           4 * position_tile * dim * shape.kv_element_bytes +
                           kAccumulatorBytes * query_tile * position_tile + kAccumulatorBytes * query_tile * dim +
                           2 * kAccumulatorBytes * query_tile;
    cost.macs = 2 * std::uint64_t{shape.query_rows} * shape.positions * dim;
    return cost;
}

TileCost cost_of_unfused(const AttentionTileShape& shape, std::uint32_t query_tile,
                         std::uint32_t position_tile) noexcept {
    const std::uint64_t query_tiles = tiles(shape.query_rows, query_tile);
    const std::uint64_t position_tiles = tiles(shape.positions, position_tile);
    const std::uint64_t dim = shape.head_dim;
    const std::uint64_t score_bytes = kAccumulatorBytes * shape.query_rows * shape.positions;
    const std::uint64_t row_bytes = dim * shape.query_element_bytes;
    TileCost cost;
    // Scores and weighted sum each walk their half of the cache once per query tile; the scores are written, read and
    // written by the softmax, and read again.
    cost.dram_bytes = 2 * shape.query_rows * row_bytes +
                      query_tiles * 2 * shape.positions * dim * shape.kv_element_bytes + 4 * score_bytes;
    cost.dma_count = query_tiles * (2 + 4 * position_tiles) + 2 * shape.query_rows;
    cost.footprint_bytes =
        std::max(query_tile * (row_bytes + kAccumulatorBytes * dim) + 2 * position_tile * dim * shape.kv_element_bytes +
                     kAccumulatorBytes * query_tile * position_tile,
                 kAccumulatorBytes * std::uint64_t{shape.positions});
    cost.macs = 2 * std::uint64_t{shape.query_rows} * shape.positions * dim;
    return cost;
}

std::optional<LinearTiling> plan_linear(const LinearShape& shape, const TileMachine& machine) {
    check_machine(machine);
    require(shape.tokens > 0 && shape.inner_width > 0 && shape.outer_width > 0, "tile plan: no size may be zero");
    std::optional<LinearTiling> best;
    const std::vector<std::uint32_t> row_sizes = tile_sizes(shape.outer_width);
    for (const std::uint32_t token_tile : tile_sizes(shape.tokens)) {
        for (const std::uint32_t row_tile : row_sizes) {
            for (const LoopOrder order : {LoopOrder::TokenOuter, LoopOrder::WeightOuter}) {
                offer(best, {order, token_tile, row_tile, cost_of(shape, order, token_tile, row_tile)}, machine);
            }
        }
    }
    return best;
}

std::optional<FeedForwardTiling> plan_feed_forward(const FeedForwardShape& shape, const TileMachine& machine) {
    check_machine(machine);
    require(shape.tokens > 0 && shape.hidden_width > 0 && shape.ffn_width > 0, "tile plan: no size may be zero");
    require(shape.hidden_width % kGroup == 0 && shape.ffn_width % kGroup == 0,
            "tile plan: widths must be multiples of 32, the group of the quantized formats");
    std::optional<FeedForwardTiling> best;
    const auto gate_up = plan_linear(gate_up_of(shape), machine);
    const auto down = plan_linear(down_of(shape), machine);
    if (gate_up && down) {
        FeedForwardTiling unfused{.gate_up = *gate_up, .down = *down, .cost = sum_of(gate_up->cost, down->cost)};
        // The norm reads and writes every row once more than the fused form.
        unfused.cost.dram_bytes += 2 * gate_up_of(shape).input_row_bytes * shape.tokens;
        unfused.cost.dma_count += 2 * std::uint64_t{shape.tokens};
        offer(best, unfused, machine);
    }
    const std::vector<std::uint32_t> ffn_units = tile_sizes(shape.ffn_width / kGroup);
    for (const std::uint32_t token_tile : tile_sizes(shape.tokens)) {
        for (const std::uint32_t units : ffn_units) {
            const auto ffn_tile = static_cast<std::uint32_t>(units * kGroup);
            offer(best,
                  {.fused = true,
                   .token_tile = token_tile,
                   .ffn_tile = ffn_tile,
                   .cost = cost_of_fused(shape, token_tile, ffn_tile)},
                  machine);
        }
    }
    return best;
}

std::optional<AttentionTiling> plan_attention(const AttentionTileShape& shape, const TileMachine& machine) {
    check_machine(machine);
    require(shape.query_rows > 0 && shape.positions > 0 && shape.head_dim > 0, "tile plan: no size may be zero");
    std::optional<AttentionTiling> best;
    const std::vector<std::uint32_t> position_sizes = tile_sizes(shape.positions);
    for (const std::uint32_t query_tile : tile_sizes(shape.query_rows)) {
        for (const std::uint32_t position_tile : position_sizes) {
            offer(best, {true, query_tile, position_tile, cost_of_fused(shape, query_tile, position_tile)}, machine);
            offer(best, {false, query_tile, position_tile, cost_of_unfused(shape, query_tile, position_tile)}, machine);
        }
    }
    return best;
}

}  // namespace perceptd::graph

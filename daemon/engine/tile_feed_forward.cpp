#include "engine/tile_feed_forward.hpp"

#include <algorithm>
#include <cmath>

#include "model/blocks.hpp"

namespace perceptd::engine {
namespace {

constexpr std::uint32_t kGroup = 32;
constexpr std::uint64_t kBlockBytes = 18;

template <typename Body>
void each_tile(std::uint32_t whole, std::uint32_t tile, Body&& body) {
    for (std::uint32_t at = 0; at < whole; at += tile) {
        body(at, std::min(tile, whole - at));
    }
}

/// acc + scales * exact integer sum: the kernels' order (kernels.hpp), one group.
float accumulate(float acc, const std::byte* block, const ActivationGroup& group) noexcept {
    std::uint16_t half = 0;
    std::memcpy(&half, block, sizeof(half));
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(block + sizeof(half));
    std::int32_t sum = 0;
    for (std::uint32_t i = 0; i < kGroup / 2; ++i) {
        sum += (codes[i] & 0x0F) * group.codes[place_in_group(i)] +
               (codes[i] >> 4) * group.codes[place_in_group(i + kGroup / 2)];
    }
    sum += group.minus_8_sums[0] + group.minus_8_sums[1];
    return std::fma(model::decode_f16(half) * group.scale, static_cast<float>(sum), acc);
}

float dot_row(const std::byte* row, const ActivationGroup* x, std::uint32_t groups) noexcept {
    float acc = 0;
    for (std::uint32_t g = 0; g < groups; ++g) {
        acc = accumulate(acc, row + g * kBlockBytes, x[g]);
    }
    return acc;
}

/// silu(gate) * up of one group of 32, quantized. `both`: 32 gate sums, then 32 up sums; overwritten.
bool finish_group(const KernelTable& kernels, float* both, ActivationGroup* out) noexcept {
    kernels.silu_multiply(both, both + kGroup, kGroup, both);
    return kernels.quantize(both, nullptr, 1, out);
}

/// One matrix product in tiles. `finish(token, row, width, sums)` ends a tile's row of sums and stores it.
template <typename Store>
void run_linear(Tcm& tcm, const graph::LinearShape& shape, const graph::LinearTiling& tiling, const std::byte* weights,
                const ActivationGroup* input, Store&& store) noexcept {
    tcm.clear();
    const bool token_outer = tiling.order == graph::LoopOrder::TokenOuter;
    const std::uint32_t groups = shape.inner_width / kGroup;
    // What the inner loop walks over has two buffers, so that the next transfer overlaps the arithmetic.
    auto* const x = tcm.take<ActivationGroup>(std::uint64_t{token_outer ? 1U : 2U} * tiling.token_tile * groups);
    auto* const w = tcm.take<std::byte>((token_outer ? 2 : 1) * tiling.row_tile * shape.weight_row_bytes);
    auto* const sums = tcm.take<float>(std::uint64_t{tiling.token_tile} * tiling.row_tile);
    const auto load_x = [&](std::uint32_t token, std::uint32_t count) {
        tcm.load(x, input + std::uint64_t{token} * groups, count * shape.input_row_bytes);
    };
    const auto load_w = [&](std::uint32_t row, std::uint32_t count) {
        tcm.load(w, weights + row * shape.weight_row_bytes, count * shape.weight_row_bytes);
    };
    const auto multiply = [&](std::uint32_t token, std::uint32_t tokens, std::uint32_t row, std::uint32_t rows) {
        for (std::uint32_t t = 0; t < tokens; ++t) {
            for (std::uint32_t r = 0; r < rows; ++r) {
                sums[t * rows + r] = dot_row(w + r * shape.weight_row_bytes, x + t * groups, groups);
            }
        }
        store(token, tokens, row, rows, sums);
    };
    if (token_outer) {
        each_tile(shape.tokens, tiling.token_tile, [&](std::uint32_t token, std::uint32_t tokens) {
            load_x(token, tokens);
            each_tile(shape.outer_width, tiling.row_tile, [&](std::uint32_t row, std::uint32_t rows) {
                load_w(row, rows);
                multiply(token, tokens, row, rows);
            });
        });
    } else {
        each_tile(shape.outer_width, tiling.row_tile, [&](std::uint32_t row, std::uint32_t rows) {
            load_w(row, rows);
            each_tile(shape.tokens, tiling.token_tile, [&](std::uint32_t token, std::uint32_t tokens) {
                load_x(token, tokens);
                multiply(token, tokens, row, rows);
            });
        });
    }
}

bool run_unfused(Tcm& tcm, const KernelTable& kernels, const graph::FeedForwardShape& shape,
                 const graph::FeedForwardTiling& tiling, const FeedForwardBlock& weights,
                 const FeedForwardRows& rows) noexcept {
    const std::uint32_t hidden_groups = shape.hidden_width / kGroup;
    const std::uint32_t ffn_groups = shape.ffn_width / kGroup;
    bool good = true;
    tcm.clear();
    auto* const row = tcm.take<ActivationGroup>(hidden_groups);
    for (std::uint32_t token = 0; token < shape.tokens; ++token) {
        const std::uint64_t at = std::uint64_t{token} * hidden_groups;
        tcm.load(row, rows.x + at, hidden_groups * sizeof(ActivationGroup));
        tcm.store(rows.normalized + at, row, hidden_groups * sizeof(ActivationGroup));
    }
    // A finished group takes less room than its sums: it is written over them.
    const auto finish = [&](std::uint32_t per_group, std::uint32_t groups_of_row, ActivationGroup* to) {
        return [&, per_group, groups_of_row, to](std::uint32_t token, std::uint32_t tokens, std::uint32_t first,
                                                 std::uint32_t count, float* sums) {
            const std::uint32_t groups = count / per_group;
            auto* const finished = reinterpret_cast<ActivationGroup*>(sums);
            for (std::uint32_t i = 0; i < tokens * groups; ++i) {
                ActivationGroup group;
                float* const from = sums + i * per_group;
                good = (per_group == kGroup ? kernels.quantize(from, nullptr, 1, &group)
                                            : finish_group(kernels, from, &group)) &&
                       good;
                std::memcpy(finished + i, &group, sizeof(group));
            }
            tcm.store_rows(to + std::uint64_t{token} * groups_of_row + first / per_group, finished,
                           groups * sizeof(ActivationGroup), tokens, groups_of_row * sizeof(ActivationGroup));
        };
    };
    run_linear(tcm, graph::gate_up_of(shape), tiling.gate_up, weights.gate_up, rows.normalized,
               finish(2 * kGroup, ffn_groups, rows.between));
    run_linear(tcm, graph::down_of(shape), tiling.down, weights.down, rows.between,
               finish(kGroup, hidden_groups, rows.out));
    return good;
}

bool run_fused(Tcm& tcm, const KernelTable& kernels, const graph::FeedForwardShape& shape,
               const graph::FeedForwardTiling& tiling, const FeedForwardBlock& weights,
               const FeedForwardRows& rows) noexcept {
    const std::uint32_t hidden_groups = shape.hidden_width / kGroup;
    const std::uint32_t ffn_groups = shape.ffn_width / kGroup;
    const std::uint32_t tile_groups = tiling.ffn_tile / kGroup;
    const std::uint64_t gate_up_row_bytes = hidden_groups * kBlockBytes;
    const std::uint64_t row_bytes = hidden_groups * sizeof(ActivationGroup);
    bool good = true;
    tcm.clear();
    auto* const x = tcm.take<ActivationGroup>(std::uint64_t{tiling.token_tile} * hidden_groups);
    auto* const acc = tcm.take<float>(std::uint64_t{tiling.token_tile} * shape.hidden_width);
    auto* const gate_up = tcm.take<std::byte>(2 * 2 * tiling.ffn_tile * gate_up_row_bytes);
    auto* const down = tcm.take<std::byte>(2 * std::uint64_t{shape.hidden_width} * tile_groups * kBlockBytes);
    auto* const sums = tcm.take<float>(std::uint64_t{2} * tiling.token_tile * tiling.ffn_tile);
    auto* const between = tcm.take<ActivationGroup>(std::uint64_t{tiling.token_tile} * tile_groups);
    each_tile(shape.tokens, tiling.token_tile, [&](std::uint32_t token, std::uint32_t tokens) {
        tcm.load(x, rows.x + std::uint64_t{token} * hidden_groups, tokens * row_bytes);
        std::fill_n(acc, std::uint64_t{tokens} * shape.hidden_width, 0.0F);
        each_tile(ffn_groups, tile_groups, [&](std::uint32_t group, std::uint32_t groups) {
            tcm.load(gate_up, weights.gate_up + std::uint64_t{2} * group * kGroup * gate_up_row_bytes,
                     std::uint64_t{2} * groups * kGroup * gate_up_row_bytes);
            tcm.load_rows(down, weights.down + group * kBlockBytes, groups * kBlockBytes, shape.hidden_width,
                          ffn_groups * kBlockBytes);
            for (std::uint32_t t = 0; t < tokens; ++t) {
                float* const own = sums + std::uint64_t{2} * t * tiling.ffn_tile;
                for (std::uint32_t r = 0; r < 2 * groups * kGroup; ++r) {
                    own[r] = dot_row(gate_up + r * gate_up_row_bytes, x + t * hidden_groups, hidden_groups);
                }
                for (std::uint32_t g = 0; g < groups; ++g) {
                    good = finish_group(kernels, own + 2 * g * kGroup, between + t * tile_groups + g) && good;
                }
                // Groups ascending over all tiles: the order, so the bits, of the unfused product.
                for (std::uint32_t h = 0; h < shape.hidden_width; ++h) {
                    float& sum = acc[std::uint64_t{t} * shape.hidden_width + h];
                    for (std::uint32_t g = 0; g < groups; ++g) {
                        sum = accumulate(sum, down + (std::uint64_t{h} * groups + g) * kBlockBytes,
                                         between[t * tile_groups + g]);
                    }
                }
            }
        });
        // The rows of x are done with: the result takes their place.
        for (std::uint32_t t = 0; t < tokens; ++t) {
            good = kernels.quantize(acc + std::uint64_t{t} * shape.hidden_width, nullptr, hidden_groups,
                                    x + t * hidden_groups) &&
                   good;
        }
        tcm.store(rows.out + std::uint64_t{token} * hidden_groups, x, tokens * row_bytes);
    });
    return good;
}

}  // namespace

bool run_feed_forward(Tcm& tcm, const KernelTable& kernels, const graph::FeedForwardShape& shape,
                      const graph::FeedForwardTiling& tiling, const FeedForwardBlock& weights,
                      const FeedForwardRows& rows) noexcept {
    return tiling.fused ? run_fused(tcm, kernels, shape, tiling, weights, rows)
                        : run_unfused(tcm, kernels, shape, tiling, weights, rows);
}

}  // namespace perceptd::engine

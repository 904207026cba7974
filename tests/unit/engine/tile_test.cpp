#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/tile_attention.hpp"
#include "engine/tile_feed_forward.hpp"
#include "model/blocks.hpp"
#include "model/weights.hpp"

namespace perceptd::engine {
namespace {

std::vector<float> noise(std::size_t count, unsigned seed, float scale) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(count);
    for (float& value : values) {
        value = normal(random);
    }
    return values;
}

std::vector<std::byte> q4_rows(const std::vector<float>& values, std::size_t columns) {
    const std::size_t row_bytes = model::row_bytes_of(model::Encoding::Q4_0, columns);
    std::vector<std::byte> rows(values.size() / columns * row_bytes);
    for (std::size_t row = 0; row * columns < values.size(); ++row) {
        model::encode_row(model::Encoding::Q4_0, std::span(values).subspan(row * columns, columns), {},
                          std::span(rows).subspan(row * row_bytes, row_bytes));
    }
    return rows;
}

const KernelTable& kernels() {
    return kernels_of(InstructionSet::Portable);
}

/// A feed-forward block with its operands.
struct Block {
    Block(std::uint32_t tokens, std::uint32_t hidden, std::uint32_t ffn)
        : shape{tokens, hidden, ffn, 18, 40},
          gate_up(q4_rows(noise(std::size_t{2} * ffn * hidden, 1, 0.1F), hidden)),
          down(q4_rows(noise(std::size_t{hidden} * ffn, 2, 0.1F), ffn)),
          x(std::size_t{tokens} * hidden / 32) {
        const std::vector<float> values = noise(std::size_t{tokens} * hidden, 3, 1);
        REQUIRE(kernels().quantize(values.data(), nullptr, x.size(), x.data()));
    }

    std::vector<ActivationGroup> run(Tcm& tcm, const graph::FeedForwardTiling& tiling) const {
        std::vector<ActivationGroup> normalized(x.size());
        std::vector<ActivationGroup> between(std::size_t{shape.tokens} * shape.ffn_width / 32);
        std::vector<ActivationGroup> out(x.size());
        REQUIRE(run_feed_forward(tcm, kernels(), shape, tiling, {gate_up.data(), down.data()},
                                 {x.data(), normalized.data(), between.data(), out.data()}));
        return out;
    }

    graph::FeedForwardShape shape;
    std::vector<std::byte> gate_up;
    std::vector<std::byte> down;
    std::vector<ActivationGroup> x;
};

bool same(const std::vector<ActivationGroup>& a, const std::vector<ActivationGroup>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(ActivationGroup)) == 0;
}

}  // namespace

TEST_CASE("a planned feed-forward block moves the planned bytes, fills the planned room and gives the same bits") {
    const Block block(5, 64, 160);
    std::vector<ActivationGroup> first;
    bool seen_fused = false;
    bool seen_unfused = false;
    for (std::uint64_t tcm_bytes = 4000; tcm_bytes < 200000; tcm_bytes = tcm_bytes * 5 / 4) {
        const auto tiling = graph::plan_feed_forward(block.shape, {.tcm_bytes = tcm_bytes});
        if (!tiling) {
            continue;
        }
        (tiling->fused ? seen_fused : seen_unfused) = true;
        Tcm tcm(tcm_bytes);
        const std::vector<ActivationGroup> out = block.run(tcm, *tiling);
        CAPTURE(tcm_bytes, tiling->fused, tiling->token_tile, tiling->ffn_tile);
        CHECK(tcm.dram_bytes() == tiling->cost.dram_bytes);
        CHECK(tcm.dma_count() == tiling->cost.dma_count);
        CHECK(tcm.peak_bytes() == tiling->cost.footprint_bytes);
        if (first.empty()) {
            first = out;
        }
        CHECK(same(out, first));
    }
    CHECK(seen_fused);
    CHECK(seen_unfused);
}

TEST_CASE("every fused tiling gives the bits of every other") {
    const Block block(3, 64, 96);
    Tcm whole(1 << 20);
    const std::vector<ActivationGroup> wanted = block.run(whole, {.fused = true, .token_tile = 3, .ffn_tile = 96});
    for (std::uint32_t token_tile = 1; token_tile <= 3; ++token_tile) {
        for (std::uint32_t ffn_tile = 32; ffn_tile <= 96; ffn_tile += 32) {
            Tcm tcm(1 << 20);
            CHECK(same(block.run(tcm, {.fused = true, .token_tile = token_tile, .ffn_tile = ffn_tile}), wanted));
            const graph::TileCost cost = graph::cost_of_fused(block.shape, token_tile, ffn_tile);
            CHECK(tcm.dram_bytes() == cost.dram_bytes);
            CHECK(tcm.dma_count() == cost.dma_count);
            CHECK(tcm.peak_bytes() == cost.footprint_bytes);
        }
    }
}

TEST_CASE("the block computes silu(gate x) * (up x), then down, as double arithmetic does") {
    const Block block(2, 64, 96);
    Tcm tcm(1 << 20);
    const std::vector<ActivationGroup> out = block.run(tcm, {.fused = true, .token_tile = 2, .ffn_tile = 32});
    const auto row = [](const std::vector<std::byte>& rows, std::size_t index, std::size_t columns) {
        const std::size_t bytes = model::row_bytes_of(model::Encoding::Q4_0, columns);
        const model::WeightMatrix matrix{.encoding = model::Encoding::Q4_0,
                                         .columns = columns,
                                         .rows = 1,
                                         .bytes = std::span(rows).subspan(index * bytes, bytes)};
        std::vector<float> values(columns);
        model::decode_row(matrix, 0, values);
        return values;
    };
    for (std::size_t token = 0; token < 2; ++token) {
        std::vector<double> x(64);
        for (std::size_t i = 0; i < 64; ++i) {
            const ActivationGroup& group = block.x[token * 2 + i / 32];
            x[i] = static_cast<double>(group.scale) * group.codes[place_in_group(i % 32)];
        }
        const auto product = [&](const std::vector<float>& weights, const std::vector<double>& values) {
            double sum = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                sum += static_cast<double>(weights[i]) * values[i];
            }
            return sum;
        };
        std::vector<double> between(96);
        for (std::size_t f = 0; f < 96; ++f) {
            const std::size_t at = f / 32 * 64 + f % 32;
            const double gate = product(row(block.gate_up, at, 64), x);
            between[f] = gate / (1 + std::exp(-gate)) * product(row(block.gate_up, at + 32, 64), x);
        }
        double largest = 0;
        double error = 0;
        for (std::size_t h = 0; h < 64; ++h) {
            const double wanted = product(row(block.down, h, 96), between);
            const ActivationGroup& group = out[token * 2 + h / 32];
            largest = std::max(largest, std::abs(wanted));
            error = std::max(error,
                             std::abs(wanted - static_cast<double>(group.scale) * group.codes[place_in_group(h % 32)]));
        }
        CHECK(error / largest < 0.02);  // two roundings to 8 bits
    }
}

TEST_CASE("planned attention moves the planned bytes and computes softmax(q k') v") {
    const std::uint32_t rows = 6;
    const std::uint32_t positions = 37;
    const std::uint32_t dim = 16;
    const graph::AttentionTileShape shape{rows, positions, dim, 4, 2};
    const std::vector<float> q = noise(std::size_t{rows} * dim, 4, 1);
    const auto halves = [&](unsigned seed) {
        std::vector<std::uint16_t> codes;
        for (const float value : noise(std::size_t{positions} * dim, seed, 1)) {
            codes.push_back(model::encode_f16(value));
        }
        return codes;
    };
    const std::vector<std::uint16_t> k = halves(5);
    const std::vector<std::uint16_t> v = halves(6);
    std::vector<double> wanted(q.size());
    for (std::uint32_t r = 0; r < rows; ++r) {
        std::vector<double> share(positions);
        double sum = 0;
        for (std::uint32_t p = 0; p < positions; ++p) {
            double score = 0;
            for (std::uint32_t i = 0; i < dim; ++i) {
                score += static_cast<double>(q[r * dim + i]) * static_cast<double>(model::decode_f16(k[p * dim + i]));
            }
            share[p] = std::exp(score * 0.25);
            sum += share[p];
        }
        for (std::uint32_t p = 0; p < positions; ++p) {
            for (std::uint32_t i = 0; i < dim; ++i) {
                wanted[r * dim + i] += share[p] / sum * static_cast<double>(model::decode_f16(v[p * dim + i]));
            }
        }
    }
    const auto try_tiling = [&](const graph::AttentionTiling& tiling) {
        Tcm tcm(1 << 20);
        std::vector<float> scores(std::size_t{rows} * positions);
        std::vector<float> out(q.size());
        run_attention(tcm, shape, tiling, 0.25F, q.data(), k.data(), v.data(), scores.data(), out.data());
        CAPTURE(tiling.fused, tiling.query_tile, tiling.position_tile);
        CHECK(tcm.dram_bytes() == tiling.cost.dram_bytes);
        CHECK(tcm.dma_count() == tiling.cost.dma_count);
        CHECK(tcm.peak_bytes() == tiling.cost.footprint_bytes);
        double error = 0;
        for (std::size_t i = 0; i < out.size(); ++i) {
            error = std::max(error, std::abs(static_cast<double>(out[i]) - wanted[i]));
        }
        CHECK(error < 1e-5);
    };
    for (std::uint32_t query_tile = 1; query_tile <= rows; ++query_tile) {
        for (const std::uint32_t position_tile : {1U, 5U, 16U, 37U}) {
            try_tiling({true, query_tile, position_tile, graph::cost_of_fused(shape, query_tile, position_tile)});
            try_tiling({false, query_tile, position_tile, graph::cost_of_unfused(shape, query_tile, position_tile)});
        }
    }
}

}  // namespace perceptd::engine

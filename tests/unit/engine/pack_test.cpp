// Packed weights mean what the source formats mean; damaged sources are refused.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "sample_weights.hpp"

using namespace perceptd;
using namespace perceptd::engine;

TEST_CASE("every packed value is the source's value, for every kind, with padded rows") {
    for (const WeightKind kind : kAllKinds) {
        for (const std::size_t rows : {std::size_t{1}, std::size_t{8}, std::size_t{13}}) {
            const std::size_t columns = chunk_shape_of(kind).k_multiple * 3;
            SampleWeights source(kind, rows, columns, 7);
            const WeightView view = source.pack_now();
            std::vector<float> row_values(columns);
            for (std::size_t row = 0; row < rows; ++row) {
                unpack_row(view, row, row_values.data());
                for (std::size_t k = 0; k < columns; ++k) {
                    INFO("kind " << static_cast<int>(kind) << " row " << row << " k " << k);
                    REQUIRE(packed_value(view, row, k) == source.value(row, k));
                    REQUIRE(row_values[k] == static_cast<float>(source.value(row, k)));
                }
            }
        }
    }
}

TEST_CASE("packing on a team gives the same bytes as packing alone, and names the row it refuses") {
    WorkerTeam team({.worker_count = 3, .cpu_indices = {}});
    SampleWeights source(WeightKind::Q4_0, 203, 96, 5);
    const WeightView alone = source.pack_now();
    AlignedBytes out(alone.bytes());
    pack(team, alone, source.bytes(), out.span());
    CHECK(std::memcmp(out.data(), alone.data, alone.bytes()) == 0);

    const std::uint16_t nan = 0x7E01;
    std::memcpy(&source.bytes()[100 * source_row_bytes(WeightKind::Q4_0, 96) + 18], &nan, 2);
    CHECK_THROWS_WITH(pack(team, alone, source.bytes(), out.span()), Catch::Contains("row 100: a scale is NaN"));
}

TEST_CASE("a scale, a weight or a zero point that cannot be is refused in every kind") {
    for (const WeightKind kind : kAllKinds) {
        const std::size_t columns = chunk_shape_of(kind).k_multiple;
        SampleWeights source(kind, 3, columns, 1);
        const WeightView view = source.pack_now();
        const std::size_t row = source_row_bytes(kind, columns);
        std::byte* bad = &source.bytes()[row * 2];
        if (kind == WeightKind::Q6_K) {
            bad += 208;
        } else if (kind == WeightKind::Int4G32 || kind == WeightKind::Int4G128) {
            bad += columns / 2;  // the codes come first
        }
        const std::size_t size = kind == WeightKind::F32 ? 4 : !is_integer(kind) && row / columns == 1 ? 1 : 2;
        std::memset(bad, 0x7F, size);  // 0x7F7F is NaN in F16 and E4M3, infinity's neighbour in F32 and BF16
        if (kind == WeightKind::F32 || kind == WeightKind::Bf16) {
            bad[size - 2] = std::byte{0xC0};
        }
        AlignedBytes out(view.bytes());
        const PackFault fault = pack_row_blocks(view, source.bytes(), out.span(), 0, 1);
        INFO("kind " << static_cast<int>(kind));
        REQUIRE(fault.reason != nullptr);
        CHECK(fault.row == 2);
    }
}

TEST_CASE("sizes that do not fit are refused") {
    WorkerTeam team({.worker_count = 1, .cpu_indices = {}});
    std::vector<std::byte> source(18 * 4);
    AlignedBytes out(4096);
    CHECK_NOTHROW(pack(team, WeightView{WeightKind::Q4_0, 4, 32}, source, out.span()));
    CHECK_THROWS_AS(pack(team, WeightView{WeightKind::Q4_0, 5, 32}, source, out.span()), Error);
    CHECK_THROWS_AS(pack(team, WeightView{WeightKind::Q4_0, 4, 40}, source, out.span()), Error);
    CHECK_THROWS_AS(pack(team, WeightView{WeightKind::Q4_0, 0, 32}, source, out.span()), Error);
    CHECK_THROWS_AS(pack(team, WeightView{WeightKind::Q4_0, 4, 32}, source, out.span().subspan(0, 256)), Error);
    CHECK_THROWS_AS(pack(team, WeightView{WeightKind::Q4_K, 4, 32}, source, out.span()), Error);
}

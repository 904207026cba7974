// Matrix kernels: bit-equal to a scalar definition with int64 sums, for every kind, set, width and split.
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>

#include "sample_weights.hpp"

using namespace perceptd::engine;

namespace {

/// Tokens of random activations in both forms.
struct SampleInput {
    std::vector<ActivationGroup> codes;
    std::vector<float> floats;
    std::size_t columns;
    std::size_t tokens;

    SampleInput(std::size_t tokens_in, std::size_t columns_in, std::uint_fast32_t seed, float size = 1.0F)
        : codes(tokens_in * columns_in / 32), floats(tokens_in * columns_in), columns(columns_in), tokens(tokens_in) {
        std::mt19937 random(seed);
        for (float& x : floats) {
            x = size * std::ldexp(static_cast<float>(random() % 65537) - 32768.0F, -15);
        }
        kernels_of(InstructionSet::Portable).quantize(floats.data(), nullptr, codes.size(), codes.data());
    }
    [[nodiscard]] LinearInput view(std::size_t count) const {
        return {{codes.data(), columns / 32}, {floats.data(), columns}, count};
    }
};

void check_against_definition(WeightKind kind, std::size_t rows, std::size_t columns, const SampleInput& input,
                              std::uint_fast32_t seed, int fill = -1) {
    SampleWeights source(kind, rows, columns, seed, fill);
    const WeightView view = source.pack_now();
    for (const KernelTable* table : available_tables()) {
        std::vector<float> out(input.tokens * rows, -1.0F);
        table->linear(view, input.view(input.tokens), 0, view.row_blocks(), out.data(), rows);
        for (std::size_t token = 0; token < input.tokens; ++token) {
            for (std::size_t row = 0; row < rows; ++row) {
                const float expected =
                    source.product(row, &input.codes[token * columns / 32], &input.floats[token * columns]);
                INFO(name_of(table->set) << " kind " << static_cast<int>(kind) << " rows " << rows << " K " << columns
                                         << " token " << token << " row " << row);
                REQUIRE(std::bit_cast<std::uint32_t>(out[token * rows + row]) ==
                        std::bit_cast<std::uint32_t>(expected));
            }
        }
    }
}

}  // namespace

TEST_CASE("linear is the scalar definition on random shapes, tails included") {
    std::mt19937 random(20);
    for (const WeightKind kind : kAllKinds) {
        for (int i = 0; i < 12; ++i) {
            const std::size_t rows = 1 + random() % 40;
            const std::size_t columns = chunk_shape_of(kind).k_multiple * (1 + random() % 11);
            const SampleInput input(1 + random() % 14, columns, random());
            check_against_definition(kind, rows, columns, input, random());
        }
    }
}

TEST_CASE("extreme codes do not overflow: all bytes alike, activations at both ends, zeros and denormals") {
    for (const WeightKind kind : kAllKinds) {
        const std::size_t columns = chunk_shape_of(kind).k_multiple * 2;
        for (const int fill : {0x00, 0x7F, 0x80, 0x88, 0xFF}) {
            SampleInput input(5, columns, 3);
            for (std::size_t g = 0; g < input.codes.size(); ++g) {
                const int token = static_cast<int>(g / (columns / 32));
                int sums[2] = {0, 0};
                for (std::size_t i = 0; i < 32; ++i) {
                    const int code = token == 0 ? 127 : token == 1 ? -127 : token == 2 ? 0 : i % 2 == 0 ? 127 : -127;
                    input.codes[g].codes[i] = static_cast<std::int8_t>(code);
                    sums[i % 4 / 2] += code;
                }
                input.codes[g].minus_8_sums[0] = static_cast<std::int16_t>(-8 * sums[0]);
                input.codes[g].minus_8_sums[1] = static_cast<std::int16_t>(-8 * sums[1]);
                input.codes[g].scale = token == 4 ? 1e-42F : 0.5F;
            }
            check_against_definition(kind, 9, columns, input, 4, fill);
        }
    }
}

TEST_CASE("a token's bits depend neither on its neighbours nor on how the rows are split") {
    for (const WeightKind kind : kAllKinds) {
        const std::size_t columns = 512;
        const std::size_t rows = 52;
        SampleWeights source(kind, rows, columns, 9);
        const WeightView view = source.pack_now();
        const SampleInput input(512, columns, 11);
        for (const KernelTable* table : available_tables()) {
            if (table->set == InstructionSet::Portable && kind != WeightKind::Q4_0) {
                continue;
            }
            std::vector<float> whole(512 * rows);
            table->linear(view, input.view(512), 0, view.row_blocks(), whole.data(), rows);
            for (const std::size_t width : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 16U}) {
                std::vector<float> part(width * rows);
                table->linear(view, input.view(width), 0, 3, part.data(), rows);
                table->linear(view, input.view(width), 3, view.row_blocks(), part.data() + 24, rows);
                INFO(name_of(table->set) << " kind " << static_cast<int>(kind) << " width " << width);
                REQUIRE(std::memcmp(part.data(), whole.data(), part.size() * sizeof(float)) == 0);
            }
        }
    }
}

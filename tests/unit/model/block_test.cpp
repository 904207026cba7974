#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "block_golden.hpp"
#include "model/blocks.hpp"
#include "model/weights.hpp"
#include "weight_source.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;

namespace {

struct Case {
    TensorType type;
    const char* blocks;
};

/// The value of a half from its fields, by exact powers of two.
double half_value(unsigned bits) {
    const unsigned field = (bits >> 10) & 31;
    const double magnitude =
        field == 0 ? std::ldexp(bits & 1023, -24) : std::ldexp(1024 + (bits & 1023), static_cast<int>(field) - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("Every half decodes to its value and encodes back") {
    double sum = 0;
    for (unsigned bits = 0; bits < 65536; ++bits) {
        const float value = decode_f16(static_cast<std::uint16_t>(bits));
        if ((bits & 0x7c00) == 0x7c00) {
            REQUIRE(std::isnan(value) == ((bits & 1023) != 0));
            REQUIRE(std::isnan(decode_f16(encode_f16(value))) == std::isnan(value));
            continue;
        }
        REQUIRE(double(value) == half_value(bits));
        REQUIRE(encode_f16(value) == bits);
        sum += std::abs(double(value));
    }
    CHECK(sum == Approx(kHalfSumOfMagnitudes).epsilon(1e-12));
}

TEST_CASE("A float becomes the nearest half, ties to even") {
    for (unsigned bits = 0; bits < 0x7bff; ++bits) {
        const double low = half_value(bits);
        const double middle = (low + half_value(bits + 1)) / 2;
        const auto exact = static_cast<float>(middle);
        REQUIRE(double(exact) == middle);
        REQUIRE(encode_f16(exact) == bits + (bits & 1));
        REQUIRE(encode_f16(std::nextafter(exact, 0.0F)) == bits);
        REQUIRE(encode_f16(std::nextafter(exact, 1e9F)) == bits + 1);
    }
    CHECK(encode_f16(65519.996F) == 0x7bff);
    CHECK(encode_f16(65520.0F) == 0x7c00);
    CHECK(encode_f16(-1e30F) == 0xfc00);
}

TEST_CASE("A float becomes the nearest bfloat16, ties to even") {
    for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
        CHECK(encode_bf16(decode_bf16(static_cast<std::uint16_t>(bits))) == bits);
        const auto middle = std::bit_cast<float>((bits << 16) | 0x8000U);
        REQUIRE(encode_bf16(middle) == bits + (bits & 1));
        REQUIRE(encode_bf16(std::bit_cast<float>((bits << 16) | 0x7fffU)) == bits);
        REQUIRE(encode_bf16(std::bit_cast<float>((bits << 16) | 0x8001U)) == bits + 1);
    }
    CHECK(std::isnan(decode_bf16(encode_bf16(std::bit_cast<float>(0x7f800001U)))));
}

TEST_CASE("Blocks of 32 are made bit for bit as numpy makes them") {
    const auto weights = lcg_weights(11, 256);
    for (const Case& one : {Case{TensorType::Q8_0, kQ8_0Blocks}, Case{TensorType::Q4_0, kQ4_0Blocks},
                            Case{TensorType::Q4_1, kQ4_1Blocks}}) {
        const auto golden = from_hex(one.blocks);
        std::vector<std::byte> made(golden.size());
        for (std::size_t block = 0; block < 8; ++block) {
            const std::size_t bytes = block_bytes_of(one.type);
            encode_block(one.type, std::span(weights).subspan(32 * block, 32),
                         std::span(made).subspan(bytes * block, bytes));
        }
        INFO(tensor_type_name(one.type));
        CHECK(made == golden);
    }
}

TEST_CASE("K-blocks decode bit for bit as numpy decodes them") {
    const std::tuple<TensorType, const char*, const char*> cases[] = {{TensorType::Q4_K, kQ4_KBlock, kQ4_KWeights},
                                                                      {TensorType::Q6_K, kQ6_KBlock, kQ6_KWeights}};
    for (const auto& [type, block, golden] : cases) {
        std::vector<float> weights(256);
        decode_block(type, from_hex(block), weights);
        const auto bytes = from_hex(golden);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            INFO(tensor_type_name(type) << " " << i);
            REQUIRE(std::bit_cast<std::uint32_t>(weights[i]) == load_u32(std::span(bytes).subspan(4 * i)));
        }
    }
}

TEST_CASE("What is encoded comes back as near as the steps of the format allow") {
    const auto weights = lcg_weights(5, 512);
    // The largest step as a part of the largest weight (8): with the scale's own rounding, a little more than half of
    // it.
    const std::pair<Encoding, double> bounds[] = {
        {Encoding::F32, 0.0},       {Encoding::F16, 0.004},      {Encoding::Bf16, 0.032},    {Encoding::Q8_0, 0.036},
        {Encoding::Q4_0, 1.01},     {Encoding::Q4_1, 0.55},      {Encoding::Q6_K, 0.285},    {Encoding::Int4G32, 1.08},
        {Encoding::Int4G128, 1.08}, {Encoding::Fp8E4m3, 0.2858}, {Encoding::Fp8E5m2, 0.5715}};
    for (const auto& [encoding, bound] : bounds) {
        std::vector<std::byte> row(row_bytes_of(encoding, weights.size()));
        const float scale = encode_row(encoding, weights, {}, row);
        std::vector<std::byte> scales(4);
        store_u32(scales, std::bit_cast<std::uint32_t>(scale));
        const WeightMatrix matrix{"m", encoding, weights.size(), 1, row, scales};
        std::vector<float> back(weights.size());
        decode_row(matrix, 0, back);
        double worst = 0;
        for (std::size_t i = 0; i < back.size(); ++i) {
            worst = std::max(worst, std::abs(double(back[i]) - double(weights[i])));
        }
        INFO(name_of(encoding) << " worst " << worst);
        CHECK(worst <= bound);
        CHECK((worst > 0 || encoding == Encoding::F32 || encoding == Encoding::F16));
        CHECK(encoding_from(name_of(encoding)) == encoding);
        CHECK_FALSE(first_non_finite(matrix));
    }
}

TEST_CASE("Zeros, tiny and huge weights have an encoding, NaN and infinity have none") {
    for (const Encoding encoding : {Encoding::F16, Encoding::Q8_0, Encoding::Q4_0, Encoding::Q4_1, Encoding::Q6_K,
                                    Encoding::Int4G32, Encoding::Fp8E4m3}) {
        std::vector<std::byte> row(row_bytes_of(encoding, 256));
        for (const float weight : {0.0F, 1e-45F, 1e-40F, -1e-7F, 65504.0F, -65504.0F}) {
            std::vector<float> weights(256, weight);
            weights[7] = 0;
            CHECK_NOTHROW(encode_row(encoding, weights, {}, row));
        }
        for (const float weight : {NAN, INFINITY, -INFINITY}) {
            std::vector<float> weights(256, 1.0F);
            weights[200] = weight;
            INFO(name_of(encoding) << " " << weight);
            CHECK_THROWS_WITH(encode_row(encoding, weights, {}, row),
                              Catch::Contains("weight 200") && Catch::Contains("cannot hold"));
        }
    }
    std::vector<float> weights(256, 65505.0F);
    std::vector<std::byte> row(row_bytes_of(Encoding::Q8_0, 256));
    CHECK_THROWS_AS(encode_row(Encoding::Q8_0, weights, {}, row), Error);
    CHECK_THROWS_AS(encode_row(Encoding::Q4_K, weights, {}, row), Error);
}

TEST_CASE("A NaN in a stored matrix is found") {
    std::vector<std::byte> bytes(4 * 6);
    store_u32(std::span(bytes).subspan(4 * 4), 0x7fc00000U);
    const auto found = first_non_finite({"m", Encoding::F32, 3, 2, bytes, {}});
    REQUIRE(found);
    CHECK(found->row == 1);
    CHECK(found->column == 1);
}

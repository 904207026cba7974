#include "model/int4.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <tuple>

#include "block_golden.hpp"
#include "model/blocks.hpp"
#include "weight_source.hpp"

using namespace perceptd::model;
using namespace perceptd::model::test;

namespace {

std::vector<float> golden_weights() {
    auto weights = lcg_weights(37, 300);
    std::fill(weights.begin() + 64, weights.begin() + 96, 0.0F);
    std::for_each(weights.begin() + 96, weights.begin() + 128, [](float& weight) { weight = std::abs(weight); });
    return weights;
}

double error_of(std::span<const float> weights, double scale, int zero) {
    double error = 0;
    for (const float weight : weights) {
        double least = INFINITY;
        for (int code = 0; code < 16; ++code) {
            least = std::min(least, std::pow(double(weight) - scale * (code - zero), 2));
        }
        error += least;
    }
    return error;
}

}  // namespace

TEST_CASE("Rows are stored bit for bit as numpy stores them") {
    const auto weights = golden_weights();
    std::vector<float> importance;
    for (const std::uint32_t value : lcg(41, 300)) {
        importance.push_back(static_cast<float>(value) / 1024.0F);
    }
    const std::span<const float> none;
    const std::tuple<std::size_t, std::span<const float>, const char*> cases[] = {
        {32U, none, kInt4G32Row},
        {128U, none, kInt4G128Row},
        {32U, std::span<const float>(importance), kInt4G32ImportantRow},
        {128U, std::span<const float>(importance), kInt4G128ImportantRow}};
    for (const auto& [group, h, golden] : cases) {
        std::vector<std::byte> row(int4_row_bytes(weights.size(), group));
        encode_int4_row(weights, h, group, row);
        INFO("group " << group << " importance " << h.size());
        CHECK(row == from_hex(golden));
    }
}

TEST_CASE("The size of a row is what the format says") {
    CHECK(int4_row_bytes(4096, 32) * 8 == std::size_t(4096 * 4.625));
    CHECK(int4_row_bytes(4096, 128) * 8 == 4096 * 4 + 4096 / 128 * 20);
    CHECK(int4_row_bytes(33, 32) == 17 + 4 + 1);
    CHECK(int4_row_bytes(1, 128) == 1 + 2 + 1);
}

TEST_CASE("A group is no worse than its plain grid and no better than the best of all") {
    for (std::uint32_t seed = 1; seed <= 6; ++seed) {
        const auto weights = lcg_weights(seed, 32);
        std::vector<std::uint8_t> codes(32);
        const Int4Group stored = encode_int4_group(weights, {}, codes);
        double found = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            found += std::pow(double(weights[i]) - double(stored.scale) * (codes[i] - stored.zero), 2);
        }
        // Every fp16 scale up to the plain one times every zero.
        const double low = double(std::min(0.0F, *std::min_element(weights.begin(), weights.end())));
        const double high = double(std::max(0.0F, *std::max_element(weights.begin(), weights.end())));
        const std::uint16_t plain = encode_f16(static_cast<float>((high - low) / 15));
        double best = INFINITY;
        for (std::uint16_t bits = encode_f16(decode_f16(plain) / 4); bits <= plain + 8; ++bits) {
            for (int zero = 0; zero < 16; ++zero) {
                best = std::min(best, error_of(weights, double(decode_f16(bits)), zero));
            }
        }
        const double plain_scale = double(decode_f16(plain));
        const int plain_zero = std::clamp(static_cast<int>(std::nearbyint(-low / plain_scale)), 0, 15);
        CHECK(found <= error_of(weights, plain_scale, plain_zero) * (1 + 1e-12));
        CHECK(found >= best * (1 - 1e-12));
        CHECK(found <= best * 1.2);
    }
}

TEST_CASE("What is stored decodes to scale times code minus zero") {
    const auto weights = golden_weights();
    for (const std::size_t group : {32U, 128U}) {
        std::vector<std::byte> row(int4_row_bytes(weights.size(), group));
        encode_int4_row(weights, {}, group, row);
        std::vector<float> back(weights.size());
        decode_int4_row(row, group, back);
        for (std::size_t i = 0; i < back.size(); ++i) {
            const Int4Group stored = int4_group_of(row, weights.size(), group, i / group);
            REQUIRE(decode_f16(encode_f16(stored.scale)) == stored.scale);
            const int code = std::to_integer<int>(row[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 15;
            REQUIRE(back[i] == stored.scale * static_cast<float>(code - stored.zero));
            if (code > 0 && code < 15) {
                REQUIRE(std::abs(back[i] - weights[i]) <= 0.5F * stored.scale * (1 + 1e-6F));
            }
        }
        CHECK(int4_group_of(row, weights.size(), group, 0).zero > 0);
    }
    std::vector<std::byte> row(int4_row_bytes(weights.size(), 32));
    encode_int4_row(weights, {}, 32, row);
    CHECK(int4_group_of(row, weights.size(), 32, 2).scale == 0);  // the all-zero group
    CHECK(int4_group_of(row, weights.size(), 32, 3).zero == 0);   // no negative weight
}

TEST_CASE("Every scale, zero and code decodes to the exact product, and comes back from it", "[.exhaustive]") {
    std::vector<std::byte> row(int4_row_bytes(32, 32));
    std::vector<float> weights(32);
    std::vector<std::byte> again(row.size());
    for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {  // all finite scales; a stored one is never negative
        const double scale = static_cast<double>(decode_f16(static_cast<std::uint16_t>(bits)));
        row[16] = static_cast<std::byte>(bits & 255);
        row[17] = static_cast<std::byte>(bits >> 8);
        for (int zero = 0; zero < 16; ++zero) {
            row[18] = static_cast<std::byte>(zero);
            for (int i = 0; i < 16; ++i) {
                row[static_cast<std::size_t>(i)] = static_cast<std::byte>(i | (15 - i) << 4);
            }
            decode_int4_row(row, 32, weights);
            for (int i = 0; i < 16; ++i) {
                REQUIRE(static_cast<double>(weights[static_cast<std::size_t>(2 * i)]) == scale * (i - zero));
                REQUIRE(static_cast<double>(weights[static_cast<std::size_t>(2 * i + 1)]) == scale * (15 - i - zero));
            }
            if (scale * 15 <= 65504) {
                // These weights are on a grid of 16 points: encoding finds one without error.
                encode_int4_row(weights, {}, 32, again);
                std::vector<float> back(32);
                decode_int4_row(again, 32, back);
                REQUIRE(back == weights);
            }
        }
    }
}

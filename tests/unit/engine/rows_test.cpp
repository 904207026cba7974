// Row kernels: error bounds against long double, definitions against scalar code, and equal bits on all sets.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/rotary.hpp"
#include "sample_weights.hpp"

using namespace perceptd::engine;

namespace {

std::vector<float> random_row(std::size_t count, std::uint_fast32_t seed, float size) {
    std::mt19937 random(seed);
    std::vector<float> row(count);
    for (float& x : row) {
        x = size * std::ldexp(static_cast<float>(random() % 2000001) - 1000000.0F, -20);
    }
    return row;
}

/// Distance in units of the last place of the float nearest to `exact`.
double ulps(float value, long double exact) {
    int exponent = 0;
    std::frexp(static_cast<double>(exact), &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
    return static_cast<double>(std::fabs(static_cast<long double>(value) - exact)) / unit;
}

template <typename Run>
void check_equal_on_all_sets(Run&& run) {
    const std::vector<float> expected = run(kernels_of(InstructionSet::Portable));
    for (const KernelTable* table : available_tables()) {
        const std::vector<float> got = run(*table);
        INFO(name_of(table->set));
        REQUIRE(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    }
}

}  // namespace

TEST_CASE("exp stays within 1.1 ulp where its result is a normal float, and has the right ends") {
    for (const KernelTable* table : available_tables()) {
        double worst = 0.0;
        std::vector<float> x(8);
        std::vector<float> y(8);
        for (int i = -87300; i < 88700; i += 8) {
            for (int j = 0; j < 8; ++j) {
                x[static_cast<std::size_t>(j)] = static_cast<float>(i + j) * 0.001F + 0.0001234F;
            }
            table->exponential(x.data(), 8, y.data());
            for (std::size_t j = 0; j < 8; ++j) {
                worst = std::max(worst, ulps(y[j], std::exp(static_cast<long double>(x[j]))));
            }
        }
        INFO(name_of(table->set));
        CHECK(worst < 1.1);
        const float inf = std::numeric_limits<float>::infinity();
        x = {0.0F, -0.0F, -inf, inf, 88.73F, -88.0F, std::nanf(""), -1e30F};
        table->exponential(x.data(), 8, y.data());
        CHECK(y[0] == 1.0F);
        CHECK(y[1] == 1.0F);
        CHECK(y[2] == 0.0F);
        CHECK(y[3] == inf);
        CHECK(y[4] == inf);
        CHECK(y[5] == 0.0F);
        CHECK(std::isnan(y[6]));
        CHECK(y[7] == 0.0F);
    }
}

TEST_CASE("SiLU and GELU stay within few ulp of the exact functions") {
    const KernelTable& table = kernels_of(chosen_instruction_set());
    std::vector<float> x(8);
    const std::vector<float> ones(8, 1.0F);
    std::vector<float> silu(8);
    std::vector<float> gelu(8);
    for (int i = -8000; i < 8000; ++i) {
        x[0] = static_cast<float>(i) * 0.01F + 0.00123F;
        table.silu_multiply(x.data(), ones.data(), 8, silu.data());
        table.gelu(x.data(), 8, gelu.data());
        const long double v = x[0];
        REQUIRE(ulps(silu[0], v / (1 + std::exp(-v))) < 3.0);
        const long double u = std::sqrt(2 / 3.14159265358979323846L) * (v + 0.044715L * v * v * v);
        const long double exact = v / 2 * (1 + std::tanh(u));
        REQUIRE(std::fabs(static_cast<long double>(gelu[0]) - exact) < 1e-6L * std::max(1.0L, std::fabs(v)));
    }
}

TEST_CASE("quantization is the scalar definition") {
    std::mt19937 random(5);
    for (int round = 0; round < 200; ++round) {
        std::vector<float> row = random_row(64, random(), std::ldexp(1.0F, static_cast<int>(random() % 60) - 40));
        if (round % 10 == 0) {
            std::fill(row.begin(), row.begin() + 32, round == 0 ? 0.0F : 1e-44F);
        }
        const std::vector<float> factors = random_row(64, random(), 2.0F);
        const float* multiplier = round % 2 == 0 ? factors.data() : nullptr;
        for (const KernelTable* table : available_tables()) {
            ActivationGroup out[2];
            REQUIRE(table->quantize(row.data(), multiplier, 2, out));
            for (std::size_t g = 0; g < 2; ++g) {
                float values[32];
                float amax = 0.0F;
                int sums[2] = {0, 0};
                for (std::size_t i = 0; i < 32; ++i) {
                    values[i] = row[32 * g + i] * (multiplier != nullptr ? multiplier[32 * g + i] : 1.0F);
                    amax = std::max(amax, std::fabs(values[i]));
                }
                const float scale = amax / 127.0F;
                REQUIRE(out[g].scale == scale);
                for (std::size_t i = 0; i < 32; ++i) {
                    const float q = scale > 0 ? std::nearbyintf(values[i] / scale) : 0.0F;
                    const int code = static_cast<int>(std::max(-127.0F, std::min(127.0F, q)));
                    REQUIRE(int{out[g].codes[place_in_group(i)]} == code);
                    sums[i / 16] += code;
                }
                REQUIRE(out[g].minus_8_sums[0] == -8 * sums[0]);
                REQUIRE(out[g].minus_8_sums[1] == -8 * sums[1]);
            }
        }
    }
}

TEST_CASE("NaN and infinity are reported wherever they stand") {
    for (const KernelTable* table : available_tables()) {
        for (std::size_t at = 0; at < 64; ++at) {
            for (const float bad :
                 {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
                std::vector<float> row(64, 0.5F);
                row[at] = bad;
                ActivationGroup out[2];
                REQUIRE_FALSE(table->quantize(row.data(), nullptr, 2, out));
                std::byte code[256];
                for (const KvFormat format : {KvFormat::F32, KvFormat::F16, KvFormat::Q8, KvFormat::Fp8E4m3}) {
                    REQUIRE_FALSE(table->encode_kv(format, row.data(), 64, code));
                }
            }
        }
        std::vector<float> row(64, 70000.0F);
        std::byte code[256];
        CHECK_FALSE(table->encode_kv(KvFormat::F16, row.data(), 64, code));
        CHECK(table->encode_kv(KvFormat::Fp8E4m3, row.data(), 64, code));
    }
}

TEST_CASE("norms, softmax, dot and rotation are close to double and equal on all sets") {
    for (const std::size_t count : {std::size_t{32}, std::size_t{256}, std::size_t{2048}}) {
        const std::vector<float> x = random_row(count, 1, 3.0F);
        const std::vector<float> weight = random_row(count, 2, 1.0F);
        double squares = 0.0;
        double mean = 0.0;
        double dot = 0.0;
        for (std::size_t i = 0; i < count; ++i) {
            squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
            mean += static_cast<double>(x[i]) / static_cast<double>(count);
            dot += static_cast<double>(x[i]) * static_cast<double>(weight[i]);
        }
        const double n = static_cast<double>(count);
        const KernelTable& table = kernels_of(chosen_instruction_set());
        std::vector<float> out(count);
        table.rms_norm(x.data(), weight.data(), 1e-5F, count, out.data());
        for (std::size_t i = 0; i < count; ++i) {
            const double exact =
                static_cast<double>(x[i]) * static_cast<double>(weight[i]) / std::sqrt(squares / n + 1e-5);
            REQUIRE(static_cast<double>(out[i]) == Approx(exact).epsilon(1e-6).margin(1e-9));
        }
        table.layer_norm(x.data(), weight.data(), x.data(), 1e-5F, count, out.data());
        const double deviation = std::sqrt(squares / n - mean * mean + 1e-5);
        for (std::size_t i = 0; i < count; ++i) {
            const double exact = (static_cast<double>(x[i]) - mean) / deviation * static_cast<double>(weight[i]) +
                                 static_cast<double>(x[i]);
            REQUIRE(static_cast<double>(out[i]) == Approx(exact).epsilon(1e-5).margin(1e-6));
        }
        CHECK(static_cast<double>(table.dot(x.data(), weight.data(), count)) == Approx(dot).epsilon(1e-5).margin(1e-4));
        std::vector<float> p = x;
        table.softmax(p.data(), count);
        double total = 0.0;
        for (const float v : p) {
            total += static_cast<double>(v);
        }
        CHECK(total == Approx(1.0).epsilon(1e-6));

        check_equal_on_all_sets([&](const KernelTable& t) {
            std::vector<float> r(6 * count + 1);
            t.rms_norm(x.data(), weight.data(), 1e-5F, count, &r[0]);
            t.layer_norm(x.data(), weight.data(), nullptr, 1e-5F, count, &r[count]);
            t.silu_multiply(x.data(), weight.data(), count, &r[2 * count]);
            t.gelu(x.data(), count, &r[3 * count]);
            t.add(x.data(), weight.data(), count, &r[4 * count]);
            std::copy(x.begin(), x.end(), r.begin() + static_cast<std::ptrdiff_t>(5 * count));
            t.softmax(&r[5 * count], count);
            r[6 * count] = t.dot(x.data(), weight.data(), count);
            return r;
        });
    }
}

TEST_CASE("rotation turns pairs by position times frequency, in both orders") {
    const std::vector<float> factors(32, 2.0F);
    const RotaryTable rotary(64, 100, 10000.0, factors);
    const std::vector<float> x = random_row(64, 8, 1.0F);
    for (const RotaryOrder order : {RotaryOrder::Norm, RotaryOrder::Neox}) {
        check_equal_on_all_sets([&](const KernelTable& t) {
            std::vector<float> r = x;
            t.rotate(r.data(), rotary.cosines(77), rotary.sines(77), 64, order);
            for (std::size_t i = 0; i < 32; ++i) {
                const std::size_t a = order == RotaryOrder::Norm ? 2 * i : i;
                const std::size_t b = order == RotaryOrder::Norm ? 2 * i + 1 : i + 32;
                const double angle = 77.0 / 2.0 * std::pow(10000.0, -2.0 * static_cast<double>(i) / 64.0);
                const double xa = static_cast<double>(x[a]);
                const double xb = static_cast<double>(x[b]);
                REQUIRE(static_cast<double>(r[a]) == Approx(xa * std::cos(angle) - xb * std::sin(angle)).margin(1e-6));
                REQUIRE(static_cast<double>(r[b]) == Approx(xa * std::sin(angle) + xb * std::cos(angle)).margin(1e-6));
            }
            return r;
        });
    }
    CHECK_THROWS(RotaryTable(63, 10, 10000.0));
    CHECK_THROWS(RotaryTable(64, 10, 0.0));
    CHECK_THROWS(RotaryTable(64, 10, 10000.0, std::vector<float>(31, 1.0F)));
    CHECK_THROWS(RotaryTable(64, 10, 10000.0, std::vector<float>(32, 0.0F)));
}

TEST_CASE("KV codes: same bytes on all sets, error within half a step") {
    const std::vector<float> row = random_row(128, 4, 5.0F);
    for (const KvFormat format : {KvFormat::F32, KvFormat::F16, KvFormat::Q8, KvFormat::Fp8E4m3}) {
        KvShape shape{1, 1, 128, format};
        std::vector<std::byte> expected(shape.row_bytes());
        REQUIRE(kernels_of(InstructionSet::Portable).encode_kv(format, row.data(), 128, expected.data()));
        check_equal_on_all_sets([&](const KernelTable& t) {
            std::vector<std::byte> code(shape.row_bytes());
            REQUIRE(t.encode_kv(format, row.data(), 128, code.data()));
            REQUIRE(code == expected);
            std::vector<float> back(128);
            t.decode_kv(format, code.data(), 128, back.data());
            for (std::size_t i = 0; i < 128; ++i) {
                const float step = format == KvFormat::F32   ? 0.0F
                                   : format == KvFormat::F16 ? std::fabs(row[i]) / 2048
                                   : format == KvFormat::Q8  ? 5.0F / 127 * 0.51F
                                                             : std::fabs(row[i]) / 16 + 0.001F;
                REQUIRE(std::fabs(back[i] - row[i]) <= step);
            }
            return back;
        });
    }
}

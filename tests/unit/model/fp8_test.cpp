#include "model/fp8.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "weight_source.hpp"

using namespace perceptd::model;

namespace {

struct Format {
    Fp8Format format;
    int mantissa_bits, bias;
    int max_code;
};
constexpr Format kFormats[] = {{Fp8Format::E4m3, 3, 7, 0x7e}, {Fp8Format::E5m2, 2, 15, 0x7b}};

/// The value of a code from the definition, in double.
double value_of(int code, const Format& format) {
    const int field = code >> format.mantissa_bits;
    const double fraction = double(code & ((1 << format.mantissa_bits) - 1)) / (1 << format.mantissa_bits);
    return field == 0 ? fraction * std::pow(2.0, 1 - format.bias) : (1 + fraction) * std::pow(2.0, field - format.bias);
}

/// The nearest of all finite values, found by looking at each; between two equally near ones the even code. A value
/// that would be the next code beyond the largest, had the format one, is an overflow.
int nearest_code(double magnitude, const Format& format, bool saturates) {
    magnitude = std::min(magnitude, 4 * value_of(format.max_code, format));  // so that distances stay exact
    int best = 0;
    for (int code = 1; code <= format.max_code + 1; ++code) {
        const double distance = std::abs(magnitude - value_of(code, format));
        const double least = std::abs(magnitude - value_of(best, format));
        if (distance < least || (distance == least && code % 2 == 0)) {
            best = code;
        }
    }
    const int beyond = saturates ? format.max_code : format.max_code + 1;
    return best > format.max_code ? beyond : best;
}

/// Walks the magnitudes in order: the same oracle at one comparison a float.
class Walk {
public:
    explicit Walk(const Format& format) {
        for (int code = 0; code <= format.max_code; ++code) {
            limits_.push_back((value_of(code, format) + value_of(code + 1, format)) / 2);
        }
    }
    int code_of(double magnitude) {
        while (code_ < int(limits_.size()) &&
               (magnitude > limits_[code_] || (magnitude == limits_[code_] && code_ % 2 == 1))) {
            ++code_;
        }
        return code_;
    }

private:
    std::vector<double> limits_;
    int code_ = 0;
};

void check_one(std::uint32_t bits, const Format& format) {
    const auto value = std::bit_cast<float>(bits);
    const int sign = int(bits >> 31) << 7;
    for (const auto overflow : {Fp8Overflow::Saturate, Fp8Overflow::Special}) {
        const bool saturates = overflow == Fp8Overflow::Saturate;
        int expected = 0;
        if (std::isnan(value)) {
            expected = format.format == Fp8Format::E4m3 ? 0x7f : 0x7e;
        } else if (std::isinf(value)) {
            expected = saturates ? format.max_code : format.max_code + 1;
        } else {
            expected = nearest_code(std::abs(double(value)), format, saturates);
        }
        INFO(std::hex << bits << " " << value);
        REQUIRE(encode_fp8(value, format.format, overflow) == (sign | expected));
    }
}

}  // namespace

TEST_CASE("All 256 codes decode to their definition") {
    for (const Format& format : kFormats) {
        for (int code = 0; code < 256; ++code) {
            const float value = decode_fp8(static_cast<std::uint8_t>(code), format.format);
            const int magnitude = code & 0x7f;
            if (magnitude <= format.max_code) {
                REQUIRE(double(value) == (code >= 128 ? -1 : 1) * value_of(magnitude, format));
                REQUIRE(std::signbit(value) == (code >= 128));
                REQUIRE(encode_fp8(value, format.format, Fp8Overflow::Special) == code);
            } else if (format.format == Fp8Format::E5m2 && magnitude == 0x7c) {
                REQUIRE(std::isinf(value));
            } else {
                REQUIRE(std::isnan(value));
            }
        }
    }
    CHECK(decode_fp8(0x7e, Fp8Format::E4m3) == 448.0F);
    CHECK(decode_fp8(0x7b, Fp8Format::E5m2) == 57344.0F);
}

TEST_CASE("The edges of the range") {
    struct Edge {
        float value;
        Fp8Format format;
        int saturated, special;
    };
    const Edge edges[] = {
        {464.0F, Fp8Format::E4m3, 0x7e, 0x7e},   {std::nextafter(464.0F, 500.0F), Fp8Format::E4m3, 0x7e, 0x7f},
        {-1e30F, Fp8Format::E4m3, 0xfe, 0xff},   {INFINITY, Fp8Format::E4m3, 0x7e, 0x7f},
        {0x1p-10F, Fp8Format::E4m3, 0, 0},       {std::nextafter(0x1p-10F, 1.0F), Fp8Format::E4m3, 1, 1},
        {-0.0F, Fp8Format::E4m3, 0x80, 0x80},    {std::nextafter(61440.0F, 0.0F), Fp8Format::E5m2, 0x7b, 0x7b},
        {61440.0F, Fp8Format::E5m2, 0x7b, 0x7c}, {-INFINITY, Fp8Format::E5m2, 0xfb, 0xfc},
        {0x1p-17F, Fp8Format::E5m2, 0, 0},       {NAN, Fp8Format::E5m2, 0x7e, 0x7e},
        {-NAN, Fp8Format::E5m2, 0xfe, 0xfe},     {NAN, Fp8Format::E4m3, 0x7f, 0x7f}};
    for (const Edge& edge : edges) {
        INFO(edge.value);
        CHECK(encode_fp8(edge.value, edge.format, Fp8Overflow::Saturate) == edge.saturated);
        CHECK(encode_fp8(edge.value, edge.format, Fp8Overflow::Special) == edge.special);
    }
}

TEST_CASE("A sample of all floats goes to the nearest code") {
    for (const Format& format : kFormats) {
        // Every sign and exponent, with the upper mantissa bits in steps and the sticky bits none, one or all.
        for (std::uint32_t top = 0; top < 0x10000; top += 0x10) {
            for (const std::uint32_t rest : {0U, 1U, 0x80000U, 0x7ffffU, 0x80001U, 0xfffffU}) {
                check_one((top << 16) | rest, format);
            }
        }
        // Around every point where the code changes.
        for (int code = 0; code <= format.max_code; ++code) {
            const auto middle = static_cast<float>((value_of(code, format) + value_of(code + 1, format)) / 2);
            const auto bits = std::bit_cast<std::uint32_t>(middle);
            for (const std::uint32_t near : {bits - 1, bits, bits + 1}) {
                check_one(near, format);
                check_one(near | 0x80000000U, format);
            }
        }
    }
}

// Half a minute and more: tools/test nightly.
TEST_CASE("All 2^32 floats go to the nearest code", "[.exhaustive]") {
    for (const Format& format : kFormats) {
        Walk walk(format);
        std::uint64_t wrong_count = 0;
        for (std::uint32_t bits = 0; bits <= 0x7fffffffU; ++bits) {
            const auto value = std::bit_cast<float>(bits);
            int saturated = 0;
            int special = 0;
            if (bits > 0x7f800000U) {
                saturated = special = format.format == Fp8Format::E4m3 ? 0x7f : 0x7e;
            } else {
                const int code = walk.code_of(double(value));
                saturated = std::min(code, format.max_code);
                special = std::min(code, format.max_code + 1);
            }
            const float negative = std::bit_cast<float>(bits | 0x80000000U);
            wrong_count += encode_fp8(value, format.format, Fp8Overflow::Saturate) != saturated;
            wrong_count += encode_fp8(value, format.format, Fp8Overflow::Special) != special;
            wrong_count += encode_fp8(negative, format.format, Fp8Overflow::Saturate) != (saturated | 0x80);
            wrong_count += encode_fp8(negative, format.format, Fp8Overflow::Special) != (special | 0x80);
        }
        CHECK(wrong_count == 0);
    }
}

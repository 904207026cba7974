// Series after a reduction to a short interval. The order of the operations is the definition of the result: golden
// values (tests/unit/generate/make_noise_golden.py) hold it fast.
#include "generate/portable_math.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace perceptd::generate {
namespace {

// ln 2 in two parts: the first has 32 bits, so that its product with an exponent is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep+0;

}  // namespace

double portable_log(double x) noexcept {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    auto exponent = static_cast<int>(bits >> 52) - 1023;
    double mantissa = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
    if (mantissa > 0x1.6a09e667f3bcdp+0) {  // sqrt 2: keeps the argument of the series below 0.172
        mantissa *= 0.5;
        ++exponent;
    }
    // log m = 2 atanh(s): f - s (f - R) keeps the leading term f exact.
    const double f = mantissa - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double series = 0;
    for (int n = 23; n >= 3; n -= 2) {
        series = series * z + 2.0 / n;
    }
    const double half_square = 0.5 * f * f;
    const double rest = s * (half_square + series * z);
    const double e = exponent;
    return e * kLn2High - ((half_square - (rest + e * kLn2Low)) - f);
}

double portable_exp(double x) noexcept {
    if (x < -700.0) {
        return 0;
    }
    static constexpr std::array<double, 14> kInverseFactorials = [] {
        std::array<double, 14> values{1.0};
        double factorial = 1;
        for (int n = 1; n < 14; ++n) {
            factorial *= n;
            values[static_cast<std::size_t>(n)] = 1.0 / factorial;
        }
        return values;
    }();
    const double n = std::floor(x * kLog2E + 0.5);
    const double r = (x - n * kLn2High) - n * kLn2Low;
    double series = 0;
    for (std::size_t i = kInverseFactorials.size(); i-- > 0;) {
        series = series * r + kInverseFactorials[i];
    }
    return series * std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

}  // namespace perceptd::generate

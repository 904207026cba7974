#include "tokens/fft.hpp"

#include <cmath>
#include <numbers>
#include <utility>

#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::tokens {

RealFft::RealFft(std::size_t length) : half_(length / 2) {
    std::size_t rest = half_;
    for (const std::size_t radix : {5u, 3u, 2u}) {
        while (rest > 1 && rest % radix == 0) {
            radices_.push_back(radix);
            rest /= radix;
        }
    }
    if (length == 0 || length % 2 != 0 || rest != 1) {
        throw Error(ErrorCode::InvalidArgument, "FFT length must be even and its half a product of 2, 3 and 5");
    }
    const auto unit = [](std::size_t index, std::size_t count) {
        const double angle = -2 * std::numbers::pi * static_cast<double>(index) / static_cast<double>(count);
        return Complex{std::cos(angle), std::sin(angle)};
    };
    for (std::size_t t = 0; t < half_; ++t) {
        twiddles_.push_back(unit(t, half_));
    }
    for (std::size_t k = 0; k <= half_; ++k) {
        real_twiddles_.push_back(unit(k, length));
    }
    front_.resize(half_);
    back_.resize(half_);
}

// One self-sorting (Stockham) decimation-in-frequency stage: front_ -> back_.
void RealFft::stage(std::size_t radix, std::size_t remaining, std::size_t stride) noexcept {
    const std::size_t groups = remaining / radix;
    const std::size_t root = half_ / radix;  // index step of exp(-2 pi i / radix)
    for (std::size_t p = 0; p < groups; ++p) {
        for (std::size_t j = 0; j < radix; ++j) {
            const Complex turn = twiddles_[j * p * stride % half_];
            for (std::size_t q = 0; q < stride; ++q) {
                Complex sum = front_[q + stride * p];
                for (std::size_t k = 1; k < radix; ++k) {
                    const Complex value = front_[q + stride * (p + k * groups)];
                    const Complex w = twiddles_[(j * k % radix) * root];
                    sum.re += value.re * w.re - value.im * w.im;
                    sum.im += value.re * w.im + value.im * w.re;
                }
                back_[q + stride * (radix * p + j)] = {sum.re * turn.re - sum.im * turn.im,
                                                       sum.re * turn.im + sum.im * turn.re};
            }
        }
    }
}

void RealFft::power(std::span<const double> input, std::span<double> out) noexcept {
    PERCEPTD_ASSERT(input.size() == length() && out.size() >= bin_count());
    for (std::size_t i = 0; i < half_; ++i) {
        front_[i] = {input[2 * i], input[2 * i + 1]};
    }
    std::size_t remaining = half_;
    std::size_t stride = 1;
    for (const std::size_t radix : radices_) {
        stage(radix, remaining, stride);
        std::swap(front_, back_);
        remaining /= radix;
        stride *= radix;
    }
    // Even samples ran as the real part and odd ones as the imaginary part: take them apart.
    for (std::size_t k = 0; k <= half_; ++k) {
        const Complex a = front_[k == half_ ? 0 : k];
        const Complex b = front_[k == 0 || k == half_ ? 0 : half_ - k];
        const double even_re = 0.5 * (a.re + b.re);
        const double even_im = 0.5 * (a.im - b.im);
        const double odd_re = 0.5 * (a.im + b.im);
        const double odd_im = -0.5 * (a.re - b.re);
        const Complex w = real_twiddles_[k];
        const double re = even_re + odd_re * w.re - odd_im * w.im;
        const double im = even_im + odd_re * w.im + odd_im * w.re;
        out[k] = re * re + im * im;
    }
}

}  // namespace perceptd::tokens

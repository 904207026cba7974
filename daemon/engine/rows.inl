// Kernels over single rows of floats: norms, activation functions, quantization, rotation, KV codes. Written once over
// `Lanes`; internal linkage, like matmul.inl. Only add, mul, fma, div, sqrt: all exactly rounded everywhere.
#pragma once

#include "engine/kernels.hpp"

namespace perceptd::engine {
namespace {

/// exp(x), error below 1 ulp; 0 below -87.33, infinity above 88.72. Cephes' polynomial of degree 7 on [-ln2/2, ln2/2].
inline Lanes::F exponential_of(Lanes::F x) {
    using L = Lanes;
    const L::F low = L::set1(-87.3365402F);
    const L::F bounded = L::max(L::set1(-88.0F), L::min(L::set1(89.0F), x));
    const L::F magic = L::set1(12582912.0F);
    const L::F shifted = L::fma(bounded, L::set1(1.44269504F), magic);
    const L::F n = L::sub(shifted, magic);
    const L::I exponent = L::sub(L::as_int(shifted), L::set1(std::int32_t{0x4B400000}));
    L::F r = L::fma(n, L::set1(-0.693359375F), bounded);
    r = L::fma(n, L::set1(2.12194440e-4F), r);
    L::F p = L::fma(L::set1(1.9875691500e-4F), r, L::set1(1.3981999507e-3F));
    p = L::fma(p, r, L::set1(8.3334519073e-3F));
    p = L::fma(p, r, L::set1(4.1665795894e-2F));
    p = L::fma(p, r, L::set1(1.6666665459e-1F));
    p = L::fma(p, r, L::set1(5.0000001201e-1F));
    p = L::add(L::fma(p, L::mul(r, r), r), L::set1(1.0F));
    // In two steps, because 2^128 is not a float and exp(88.5) is.
    const L::I half = L::shift_right<1>(exponent);
    const L::I bias = L::set1(std::int32_t{127});
    const L::F first = L::as_float(L::shift_left<23>(L::add(half, bias)));
    const L::F second = L::as_float(L::shift_left<23>(L::add(L::sub(exponent, half), bias)));
    return L::select_less(x, low, L::zero(), L::mul(L::mul(p, first), second));
}

/// x / (1 + exp(-x)).
inline Lanes::F silu_of(Lanes::F x) {
    return Lanes::div(x, Lanes::add(Lanes::set1(1.0F), exponential_of(Lanes::sub(Lanes::zero(), x))));
}

bool quantize_row(const float* values, const float* multiplier, std::size_t group_count,
                  ActivationGroup* out) noexcept {
    using L = Lanes;
    L::F not_finite = L::zero();
    for (std::size_t g = 0; g < group_count; ++g, values += kGroupSize) {
        L::F v[4];
        L::F largest = L::zero();
#pragma GCC unroll 4
        for (std::size_t i = 0; i < 4; ++i) {
            v[i] = L::load(values + 8 * i);
            if (multiplier != nullptr) {
                v[i] = L::mul(v[i], L::load(multiplier + g * kGroupSize + 8 * i));
            }
            not_finite = L::fma(v[i], L::zero(), not_finite);
            largest = L::max(L::abs(v[i]), largest);
        }
        float lanes[8];
        L::store(lanes, largest);
        float amax = lanes[0];
        for (float lane : lanes) {
            amax = lane > amax ? lane : amax;
        }
        const float scale = amax / 127.0F;
        L::I codes[4];
#pragma GCC unroll 4
        for (std::size_t i = 0; i < 4; ++i) {
            // A NaN becomes 127 here; the caller hears of it.
            const L::F q = scale > 0.0F ? L::div(v[i], L::set1(scale)) : L::zero();
            codes[i] = L::round(L::max(L::min(q, L::set1(127.0F)), L::set1(-127.0F)));
        }
        L::store_group(out[g].codes, codes[0], codes[1], codes[2], codes[3]);
        out[g].scale = scale;
        out[g].minus_8_sums[0] = static_cast<std::int16_t>(-8 * L::sum(L::add(codes[0], codes[1])));
        out[g].minus_8_sums[1] = static_cast<std::int16_t>(-8 * L::sum(L::add(codes[2], codes[3])));
    }
    return !L::any_nan(not_finite);
}

void rms_norm_row(const float* x, const float* weight, float epsilon, std::size_t count, float* out) noexcept {
    using L = Lanes;
    L::F squares = L::zero();
    for (std::size_t i = 0; i < count; i += 8) {
        const L::F v = L::load(x + i);
        squares = L::fma(v, v, squares);
    }
    const float mean = L::tree_sum(squares) / static_cast<float>(count);
    const L::F factor = L::set1(1.0F / L::first(L::sqrt(L::set1(mean + epsilon))));
    for (std::size_t i = 0; i < count; i += 8) {
        L::store(out + i, L::mul(L::mul(L::load(x + i), factor), L::load(weight + i)));
    }
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float epsilon, std::size_t count,
                    float* out) noexcept {
    using L = Lanes;
    L::F sums = L::zero();
    for (std::size_t i = 0; i < count; i += 8) {
        sums = L::add(sums, L::load(x + i));
    }
    const L::F mean = L::set1(L::tree_sum(sums) / static_cast<float>(count));
    L::F squares = L::zero();
    for (std::size_t i = 0; i < count; i += 8) {
        const L::F v = L::sub(L::load(x + i), mean);
        squares = L::fma(v, v, squares);
    }
    const float variance = L::tree_sum(squares) / static_cast<float>(count);
    const L::F factor = L::set1(1.0F / L::first(L::sqrt(L::set1(variance + epsilon))));
    for (std::size_t i = 0; i < count; i += 8) {
        const L::F v = L::mul(L::mul(L::sub(L::load(x + i), mean), factor), L::load(weight + i));
        L::store(out + i, bias != nullptr ? L::add(v, L::load(bias + i)) : v);
    }
}

void silu_multiply_row(const float* gate, const float* up, std::size_t count, float* out) noexcept {
    for (std::size_t i = 0; i < count; i += 8) {
        Lanes::store(out + i, Lanes::mul(silu_of(Lanes::load(gate + i)), Lanes::load(up + i)));
    }
}

void gelu_row(const float* x, std::size_t count, float* out) noexcept {
    using L = Lanes;
    for (std::size_t i = 0; i < count; i += 8) {
        const L::F v = L::load(x + i);
        // tanh(u) as 2 / (1 + exp(-2u)) - 1: gelu = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
        const L::F cubic = L::fma(L::mul(L::mul(v, v), v), L::set1(0.044715F), v);
        const L::F power = exponential_of(L::mul(cubic, L::set1(-1.59576912F)));
        L::store(out + i, L::div(v, L::add(L::set1(1.0F), power)));
    }
}

void exponential_row(const float* x, std::size_t count, float* out) noexcept {
    for (std::size_t i = 0; i < count; i += 8) {
        Lanes::store(out + i, exponential_of(Lanes::load(x + i)));
    }
}

void add_rows(const float* a, const float* b, std::size_t count, float* out) noexcept {
    for (std::size_t i = 0; i < count; i += 8) {
        Lanes::store(out + i, Lanes::add(Lanes::load(a + i), Lanes::load(b + i)));
    }
}

void softmax_row(float* x, std::size_t count) noexcept {
    using L = Lanes;
    float largest = x[0];
    for (std::size_t i = 1; i < count; ++i) {
        largest = x[i] > largest ? x[i] : largest;
    }
    L::F sums = L::zero();
    for (std::size_t i = 0; i < count; i += 8) {
        const L::F p = exponential_of(L::sub(L::load(x + i), L::set1(largest)));
        L::store(x + i, p);
        sums = L::add(sums, p);
    }
    const L::F total = L::set1(L::tree_sum(sums));
    for (std::size_t i = 0; i < count; i += 8) {
        L::store(x + i, L::div(L::load(x + i), total));
    }
}

float dot_rows(const float* a, const float* b, std::size_t count) noexcept {
    Lanes::F sums = Lanes::zero();
    for (std::size_t i = 0; i < count; i += 8) {
        sums = Lanes::fma(Lanes::load(a + i), Lanes::load(b + i), sums);
    }
    return Lanes::tree_sum(sums);
}

/// x' = x cos - y sin, y' = x sin + y cos, each as fma(first, second, product).
void rotate_head(float* head, const float* cosines, const float* sines, std::size_t dimension,
                 RotaryOrder order) noexcept {
    using L = Lanes;
    const std::size_t half = dimension / 2;
    for (std::size_t i = 0; i < half; i += 8) {
        float x[8];
        float y[8];
        for (std::size_t j = 0; j < 8; ++j) {
            x[j] = order == RotaryOrder::Neox ? head[i + j] : head[2 * (i + j)];
            y[j] = order == RotaryOrder::Neox ? head[half + i + j] : head[2 * (i + j) + 1];
        }
        const L::F cosine = L::load(cosines + i);
        const L::F sine = L::load(sines + i);
        const L::F a = L::load(x);
        const L::F b = L::load(y);
        L::store(x, L::fma(a, cosine, L::sub(L::zero(), L::mul(b, sine))));
        L::store(y, L::fma(a, sine, L::mul(b, cosine)));
        for (std::size_t j = 0; j < 8; ++j) {
            head[order == RotaryOrder::Neox ? i + j : 2 * (i + j)] = x[j];
            head[order == RotaryOrder::Neox ? half + i + j : 2 * (i + j) + 1] = y[j];
        }
    }
}

}  // namespace
}  // namespace perceptd::engine

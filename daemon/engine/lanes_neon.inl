// Eight lanes on AArch64 with dot product: two vectors of four. The same interface as in lanes_avx2.inl. For the kernel
// files whose flags allow them: kernels_neon.cpp, and kernels_i8mm.cpp, which replaces some. Internal linkage: each of
// them compiles its own copy.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "engine/activations.hpp"

namespace perceptd::engine {
namespace {

struct NeonLanes {
    static constexpr int kTile4 = 6;
    static constexpr bool kPairsBlocks = false;
    static constexpr bool kWidensBlocks = false;
    static constexpr bool kPairsTokens = false;
    static constexpr int kTile8 = 6;
    static constexpr int kTileFloat = 6;
    struct F {
        float32x4_t a, b;
    };
    struct I {
        int32x4_t a, b;
    };

    static F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
    static void store(float* p, F v) {
        vst1q_f32(p, v.a);
        vst1q_f32(p + 4, v.b);
    }
    static F set1(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
    static F zero() { return set1(0.0F); }
    static F add(F x, F y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
    static F sub(F x, F y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
    static F mul(F x, F y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
    static F div(F x, F y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
    static F fma(F x, F y, F z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
    static F sqrt(F x) { return {vsqrtq_f32(x.a), vsqrtq_f32(x.b)}; }
    /// x > y ? x : y, which is not what fmax does with NaN.
    static F max(F x, F y) {
        return {vbslq_f32(vcgtq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcgtq_f32(x.b, y.b), x.b, y.b)};
    }
    static F min(F x, F y) {
        return {vbslq_f32(vcltq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcltq_f32(x.b, y.b), x.b, y.b)};
    }
    static F abs(F x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
    static F select_less(F x, F y, F u, F v) {
        return {vbslq_f32(vcltq_f32(x.a, y.a), u.a, v.a), vbslq_f32(vcltq_f32(x.b, y.b), u.b, v.b)};
    }
    static bool any_nan(F x) { return vminvq_u32(vandq_u32(vceqq_f32(x.a, x.a), vceqq_f32(x.b, x.b))) == 0; }
    static float first(F x) { return vgetq_lane_f32(x.a, 0); }
    template <typename T>
    static void keep_order(F&, T*&) {}

    static I set1(std::int32_t v) { return {vdupq_n_s32(v), vdupq_n_s32(v)}; }
    static I add(I x, I y) { return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b)}; }
    static I sub(I x, I y) { return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b)}; }
    static I mul(I x, I y) { return {vmulq_s32(x.a, y.a), vmulq_s32(x.b, y.b)}; }
    template <int Bits>
    static I shift_left(I x) {
        return {vshlq_n_s32(x.a, Bits), vshlq_n_s32(x.b, Bits)};
    }
    template <int Bits>
    static I shift_right(I x) {
        return {vshrq_n_s32(x.a, Bits), vshrq_n_s32(x.b, Bits)};
    }
    static I as_int(F x) { return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b)}; }
    static F as_float(I x) { return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b)}; }
    static F to_float(I x) { return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
    static I load_u8(const std::byte* p) {
        const uint16x8_t words = vmovl_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(p)));
        return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words))),
                vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(words)))};
    }
    static I load_i8(const std::byte* p) {
        const int16x8_t words = vmovl_s8(vld1_s8(reinterpret_cast<const std::int8_t*>(p)));
        return {vmovl_s16(vget_low_s16(words)), vmovl_s16(vget_high_s16(words))};
    }
    static I round(F x) { return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b)}; }
    static int16x8_t words_of(I x) { return vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b)); }
    static void store_group(std::int8_t* p, I a, I b, I c, I d) {
        const int8x16_t low = vcombine_s8(vmovn_s16(words_of(a)), vmovn_s16(words_of(b)));
        const int8x16_t high = vcombine_s8(vmovn_s16(words_of(c)), vmovn_s16(words_of(d)));
        vst2q_s16(reinterpret_cast<std::int16_t*>(p), {vreinterpretq_s16_s8(low), vreinterpretq_s16_s8(high)});
    }
    static void store_i8(std::byte* p, I x) { vst1_s8(reinterpret_cast<std::int8_t*>(p), vmovn_s16(words_of(x))); }
    static std::int32_t sum(I x) { return vaddvq_s32(vaddq_s32(x.a, x.b)); }

    static F load_f16(const std::byte* p) {
        const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)));
        return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_f32_f16(vget_high_f16(halves))};
    }
    static void store_f16(std::byte* p, F x) {
        const float16x8_t halves = vcombine_f16(vcvt_f16_f32(x.a), vcvt_f16_f32(x.b));
        vst1q_u8(reinterpret_cast<std::uint8_t*>(p), vreinterpretq_u8_f16(halves));
    }
    static F load_bf16(const std::byte* p) {
        const uint16x8_t words = vreinterpretq_u16_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)));
        return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(words), 16)),
                vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(words), 16))};
    }
    template <int MantissaBits>
    static F load_fp8(const std::byte* p, float bias) {
        const I codes = load_u8(p);
        const auto one = [&](int32x4_t c) {
            const int32x4_t sign = vshlq_n_s32(vandq_s32(c, vdupq_n_s32(0x80)), 24);
            const int32x4_t magnitude = vshlq_n_s32(vandq_s32(c, vdupq_n_s32(0x7F)), 23 - MantissaBits);
            const float32x4_t value = vmulq_n_f32(vreinterpretq_f32_s32(magnitude), bias);
            return vreinterpretq_f32_s32(vorrq_s32(vreinterpretq_s32_f32(value), sign));
        };
        return {one(codes.a), one(codes.b)};
    }

    static F sum8(const F (&v)[8]) {
        const auto halves = [&](int i) { return vaddq_f32(v[i].a, v[i].b); };
        const auto four = [&](int i) {
            return vpaddq_f32(vpaddq_f32(halves(i), halves(i + 1)), vpaddq_f32(halves(i + 2), halves(i + 3)));
        };
        return {four(0), four(4)};
    }
    static float tree_sum(F x) {
        float32x4_t half = vaddq_f32(x.a, x.b);
        half = vpaddq_f32(half, half);
        return vgetq_lane_f32(vpaddq_f32(half, half), 0);
    }

    static I join_words(I low, I high) {
        const int32x4_t mask = vdupq_n_s32(0xFFFF);
        return {vorrq_s32(vandq_s32(low.a, mask), vshlq_n_s32(high.a, 16)),
                vorrq_s32(vandq_s32(low.b, mask), vshlq_n_s32(high.b, 16))};
    }
    static I low_words(I x) { return shift_right<16>(shift_left<16>(x)); }
    static I high_words(I x) { return shift_right<16>(x); }
    static I sum_of_halves(const std::int16_t* halves) { return set1(std::int32_t{halves[0]} + halves[1]); }

    /// Quad j of rows 0..3 and of rows 4..7.
    struct Quads {
        int8x16_t a[8];
        int8x16_t b[8];
    };
    static uint8x16_t bytes(const std::byte* p) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)); }
    static Quads load_nibbles(const std::byte* p) {
        Quads w;
        const uint8x16_t mask = vdupq_n_u8(0x0F);
        for (int j = 0; j < 4; ++j) {
            const uint8x16_t first = bytes(p + 32 * j);
            const uint8x16_t second = bytes(p + 32 * j + 16);
            w.a[j] = vreinterpretq_s8_u8(vandq_u8(first, mask));
            w.b[j] = vreinterpretq_s8_u8(vandq_u8(second, mask));
            w.a[j + 4] = vreinterpretq_s8_u8(vshrq_n_u8(first, 4));
            w.b[j + 4] = vreinterpretq_s8_u8(vshrq_n_u8(second, 4));
        }
        return w;
    }
    static Quads load_six_bits(const std::byte* p, const std::byte* upper) {
        Quads w = load_nibbles(p);
        const uint8x16_t mask = vdupq_n_u8(0x30);
        const auto add_bits = [&](int8x16_t code, const std::byte* from, int j) {
            const uint8x16_t shifted = vshlq_u8(bytes(from), vdupq_n_s8(static_cast<std::int8_t>(4 - 2 * (j % 4))));
            return vreinterpretq_s8_u8(vorrq_u8(vreinterpretq_u8_s8(code), vandq_u8(shifted, mask)));
        };
        for (int j = 0; j < 8; ++j) {
            w.a[j] = add_bits(w.a[j], upper + 32 * (j / 4), j);
            w.b[j] = add_bits(w.b[j], upper + 32 * (j / 4) + 16, j);
        }
        return w;
    }
    static I dot_quads(const Quads& w, int8x16_t first, int8x16_t second) {
        I sums = set1(std::int32_t{0});
        sums = {vdotq_laneq_s32(sums.a, w.a[0], first, 0), vdotq_laneq_s32(sums.b, w.b[0], first, 0)};
        sums = {vdotq_laneq_s32(sums.a, w.a[1], first, 1), vdotq_laneq_s32(sums.b, w.b[1], first, 1)};
        sums = {vdotq_laneq_s32(sums.a, w.a[2], first, 2), vdotq_laneq_s32(sums.b, w.b[2], first, 2)};
        sums = {vdotq_laneq_s32(sums.a, w.a[3], first, 3), vdotq_laneq_s32(sums.b, w.b[3], first, 3)};
        sums = {vdotq_laneq_s32(sums.a, w.a[4], second, 0), vdotq_laneq_s32(sums.b, w.b[4], second, 0)};
        sums = {vdotq_laneq_s32(sums.a, w.a[5], second, 1), vdotq_laneq_s32(sums.b, w.b[5], second, 1)};
        sums = {vdotq_laneq_s32(sums.a, w.a[6], second, 2), vdotq_laneq_s32(sums.b, w.b[6], second, 2)};
        return {vdotq_laneq_s32(sums.a, w.a[7], second, 3), vdotq_laneq_s32(sums.b, w.b[7], second, 3)};
    }
    static I dot4(const Quads& w, const std::int8_t* a) { return dot_quads(w, vld1q_s8(a), vld1q_s8(a + 16)); }
    static I dot4_less_eight(const Quads& w, const std::int8_t* a, const std::int16_t* minus_8) {
        return add(dot4(w, a), sum_of_halves(minus_8));
    }
    /// -z * the sum of the codes.
    static I less_zero_points(I z, const std::int16_t* minus_8) {
        const std::int32_t minus_sum = (std::int32_t{minus_8[0]} + minus_8[1]) / 8;
        return mul(low_words(z), set1(minus_sum));
    }
    static I dot4_less(const Quads& w, I z, const std::int8_t* a, const std::int16_t* minus_8) {
        return add(dot4(w, a), less_zero_points(z, minus_8));
    }
    static I dot6(const Quads& w, I scales, I offsets, const std::int8_t* a, const std::int16_t* minus_8) {
        const int8x16_t low_half = vreinterpretq_s8_s32(vdupq_n_s32(0x0000FFFF));
        const int8x16_t first = vld1q_s8(a);
        const int8x16_t second = vld1q_s8(a + 16);
        const I low = dot_quads(w, vandq_s8(first, low_half), vandq_s8(second, low_half));
        const I high = dot_quads(w, vbicq_s8(first, low_half), vbicq_s8(second, low_half));
        const I sums = add(mul(low_words(scales), low), mul(high_words(scales), high));
        const I first_offset = mul(low_words(offsets), set1(std::int32_t{minus_8[0]}));
        return add(sums, add(first_offset, mul(high_words(offsets), set1(std::int32_t{minus_8[1]}))));
    }
    static Quads load_quads(const std::byte* w) {
        Quads quads;
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            quads.a[j] = vreinterpretq_s8_u8(bytes(w + 32 * j));
            quads.b[j] = vreinterpretq_s8_u8(bytes(w + 32 * j + 16));
        }
        return quads;
    }
    template <int Columns>
    static void dot8(const std::byte* w, const ActivationGroup* const (&a)[Columns], I (&sums)[Columns]) {
        const Quads quads = load_quads(w);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            sums[c] = dot4(quads, a[c]->codes);
        }
    }
};

}  // namespace
}  // namespace perceptd::engine

// Eight lanes on AVX2, FMA and F16C, for the kernel files whose flags allow them: kernels_avx2.cpp, and
// kernels_avx512.cpp, which replaces some. Internal linkage: each of them compiles its own copy.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "engine/activations.hpp"

namespace perceptd::engine {
namespace {

struct Avx2Lanes {
    static constexpr int kTile4 = 5;              ///< tokens a pass
    static constexpr bool kPairsBlocks = true;    ///< whether integer_block_pair() pays
    static constexpr bool kWidensBlocks = false;  ///< whether there are vectors for two row blocks (matmul_wide.inl)
    static constexpr bool kPairsTokens = false;   ///< whether two tokens are multiplied at once
    static constexpr int kTile8 = 5;
    static constexpr int kTileFloat = 6;
    using F = __m256;
    using I = __m256i;

    static F load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
    static F set1(float v) { return _mm256_set1_ps(v); }
    static F zero() { return _mm256_setzero_ps(); }
    static F add(F a, F b) { return _mm256_add_ps(a, b); }
    static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
    static F div(F a, F b) { return _mm256_div_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    static F sqrt(F a) { return _mm256_sqrt_ps(a); }
    static F max(F a, F b) { return _mm256_max_ps(a, b); }  ///< a > b ? a : b
    static F min(F a, F b) { return _mm256_min_ps(a, b); }  ///< a < b ? a : b
    static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a); }
    /// a < b ? x : y
    static F select_less(F a, F b, F x, F y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
    static bool any_nan(F a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }
    static float first(F a) { return _mm256_cvtss_f32(a); }

    /// Ties `next` to `done` for the compiler's scheduler, so that loads through `next` come later; no instruction.
    template <typename T>
    static void keep_order(F& done, T*& next) {
        asm("" : "+x"(done), "+r"(next));
    }

    static I set1(std::int32_t v) { return _mm256_set1_epi32(v); }
    static I add(I a, I b) { return _mm256_add_epi32(a, b); }
    static I sub(I a, I b) { return _mm256_sub_epi32(a, b); }
    template <int Bits>
    static I shift_left(I a) {
        return _mm256_slli_epi32(a, Bits);
    }
    template <int Bits>
    static I shift_right(I a) {  ///< arithmetic
        return _mm256_srai_epi32(a, Bits);
    }
    static I as_int(F a) { return _mm256_castps_si256(a); }
    static F as_float(I a) { return _mm256_castsi256_ps(a); }
    static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
    static I load_u8(const std::byte* p) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    }
    static I load_i8(const std::byte* p) {
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    }
    /// To nearest even; |a| below 2^22.
    static I round(F a) { return _mm256_cvtps_epi32(a); }
    /// Stores 32 values within -127..127 as bytes in the order of place_in_group().
    static void store_group(std::int8_t* p, I a, I b, I c, I d) {
        const I low = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
        const I high = _mm256_permute4x64_epi64(_mm256_packs_epi32(c, d), 0xD8);
        const I order = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0, 1, 8, 9, 2, 3, 10, 11,
                                         4, 5, 12, 13, 6, 7, 14, 15);
        const I bytes = _mm256_shuffle_epi8(_mm256_packs_epi16(low, high), order);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bytes);
    }
    /// Stores 8 values within -127..127 as bytes.
    static void store_i8(std::byte* p, I a) {
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, a), a);
        const auto low = static_cast<std::uint32_t>(_mm256_cvtsi256_si32(bytes));
        const auto high = static_cast<std::uint32_t>(_mm256_extract_epi32(bytes, 4));
        __builtin_memcpy(p, &low, 4);
        __builtin_memcpy(p + 4, &high, 4);
    }
    static std::int32_t sum(I a) {
        __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
        return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1)));
    }

    static F load_f16(const std::byte* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static void store_f16(std::byte* p, F v) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    static F load_bf16(const std::byte* p) {
        return as_float(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
    }
    /// FP8 codes without NaN and infinity: the bits as a float's, then the exponent's bias by an exact product.
    template <int MantissaBits>
    static F load_fp8(const std::byte* p, float bias) {
        const I codes = load_u8(p);
        const I sign = _mm256_slli_epi32(_mm256_and_si256(codes, set1(0x80)), 24);
        const I magnitude = _mm256_slli_epi32(_mm256_and_si256(codes, set1(0x7F)), 23 - MantissaBits);
        return _mm256_or_ps(mul(as_float(magnitude), set1(bias)), as_float(sign));
    }

    /// Lane j = the tree sum of v[j].
    static F sum8(const F (&v)[8]) {
        const auto halves = [](F a, F b) {
            return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
        };
        const F low = _mm256_hadd_ps(halves(v[0], v[4]), halves(v[1], v[5]));
        const F high = _mm256_hadd_ps(halves(v[2], v[6]), halves(v[3], v[7]));
        return _mm256_hadd_ps(low, high);
    }
    static float tree_sum(F v) {
        __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        half = _mm_hadd_ps(half, half);
        return _mm_cvtss_f32(_mm_hadd_ps(half, half));
    }

    static I load_words(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static I broadcast(const void* p) {
        std::int32_t word = 0;
        __builtin_memcpy(&word, p, 4);
        return _mm256_set1_epi32(word);
    }
    /// Per lane: halves[0] + halves[1].
    static I sum_of_halves(const std::int16_t* halves) {
        return _mm256_madd_epi16(broadcast(halves), _mm256_set1_epi16(1));
    }
    /// Per lane the int16 pair (low, high); lane values must fit int16.
    static I join_words(I low, I high) {
        return _mm256_or_si256(_mm256_and_si256(low, set1(0xFFFF)), _mm256_slli_epi32(high, 16));
    }

    /// One group of 4-bit (or 6-bit) codes of 8 rows, unpacked; quad j as in weights.hpp.
    struct Quads {
        I q[8];
    };
    struct Quad {
        std::int8_t codes[4];
    };
    static const Quad& quad(const std::int8_t* a, int j) { return reinterpret_cast<const Quad*>(a)[j]; }
    static Quads load_nibbles(const std::byte* p) {
        Quads w;
        const I mask = _mm256_set1_epi8(0x0F);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            const I both = load_words(p + 32 * j);
            w.q[j] = _mm256_and_si256(both, mask);
            w.q[j + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        }
        return w;
    }
    /// Nibbles at `p`, their two upper bits at `high`: bits 2j of byte b belong to quad j of vector 0 (0..3) or 1
    /// (4..7).
    static Quads load_six_bits(const std::byte* p, const std::byte* high) {
        Quads w = load_nibbles(p);
        const I mask = _mm256_set1_epi8(0x30);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const I bits = load_words(high + 32 * half);
            w.q[4 * half] = _mm256_or_si256(w.q[4 * half], _mm256_and_si256(_mm256_slli_epi16(bits, 4), mask));
            w.q[4 * half + 1] = _mm256_or_si256(w.q[4 * half + 1], _mm256_and_si256(_mm256_slli_epi16(bits, 2), mask));
            w.q[4 * half + 2] = _mm256_or_si256(w.q[4 * half + 2], _mm256_and_si256(bits, mask));
            w.q[4 * half + 3] = _mm256_or_si256(w.q[4 * half + 3], _mm256_and_si256(_mm256_srli_epi16(bits, 2), mask));
        }
        return w;
    }
    /// `start` plus the products by int16 halves of a lane: 8 pairs, each at most 15 * 127 * 2, stay below 30480.
    /// In assembly because compilers load all broadcasts first and then spill the weights: two registers are enough.
    static I add_products(I start, const Quads& w, const std::int8_t* a) {
        I product;
        asm("vpbroadcastd %[a0], %[p]\n\tvpmaddubsw %[p], %[w0], %[p]\n\tvpaddw %[p], %[s], %[s]\n\t"
            "vpbroadcastd %[a1], %[p]\n\tvpmaddubsw %[p], %[w1], %[p]\n\tvpaddw %[p], %[s], %[s]\n\t"
            "vpbroadcastd %[a2], %[p]\n\tvpmaddubsw %[p], %[w2], %[p]\n\tvpaddw %[p], %[s], %[s]\n\t"
            "vpbroadcastd %[a3], %[p]\n\tvpmaddubsw %[p], %[w3], %[p]\n\tvpaddw %[p], %[s], %[s]\n\t"
            "vpbroadcastd %[a4], %[p]\n\tvpmaddubsw %[p], %[w4], %[p]\n\tvpaddw %[p], %[s], %[s]\n\t"
            "vpbroadcastd %[a5], %[p]\n\tvpmaddubsw %[p], %[w5], %[p]\n\tvpaddw %[p], %[s], %[s]\n\t"
            "vpbroadcastd %[a6], %[p]\n\tvpmaddubsw %[p], %[w6], %[p]\n\tvpaddw %[p], %[s], %[s]\n\t"
            "vpbroadcastd %[a7], %[p]\n\tvpmaddubsw %[p], %[w7], %[p]\n\tvpaddw %[p], %[s], %[s]"
            : [s] "+x"(start), [p] "=&x"(product)
            : [a0] "m"(quad(a, 0)), [a1] "m"(quad(a, 1)), [a2] "m"(quad(a, 2)), [a3] "m"(quad(a, 3)),
              [a4] "m"(quad(a, 4)), [a5] "m"(quad(a, 5)), [a6] "m"(quad(a, 6)), [a7] "m"(quad(a, 7)), [w0] "x"(w.q[0]),
              [w1] "x"(w.q[1]), [w2] "x"(w.q[2]), [w3] "x"(w.q[3]), [w4] "x"(w.q[4]), [w5] "x"(w.q[5]),
              [w6] "x"(w.q[6]), [w7] "x"(w.q[7]));
        return start;
    }
    /// Per lane: the sum of the two int16 halves.
    static I add_halves(I sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
    /// -z * (sums of the codes by halves); `z` as pairs of equal int16.
    static I less_zero_points(I z, const std::int16_t* minus_8) {
        return _mm256_mullo_epi16(_mm256_srai_epi16(broadcast(minus_8), 3), z);
    }
    /// Vector j of a group's nibbles, of two row blocks: quads j and j + 4.
    struct NibblePair {
        I low[2];
        I high[2];

        NibblePair(const std::byte* p, std::size_t block_bytes) {
            const I mask = _mm256_set1_epi8(0x0F);
#pragma GCC unroll 2
            for (std::size_t b = 0; b < 2; ++b) {
                const I both = load_words(p + b * block_bytes);
                low[b] = _mm256_and_si256(both, mask);
                high[b] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
            }
        }
        /// In assembly for the same reason as Lanes::add_products.
        void add_products(const std::int8_t* a, int j, I& first, I& second) const {
            I x;
            I y;
            asm("vpbroadcastd %[a], %[x]\n\tvpmaddubsw %[x], %[low0], %[y]\n\tvpmaddubsw %[x], %[low1], %[x]\n\t"
                "vpaddw %[y], %[s0], %[s0]\n\tvpaddw %[x], %[s1], %[s1]\n\t"
                "vpbroadcastd %[b], %[x]\n\tvpmaddubsw %[x], %[high0], %[y]\n\tvpmaddubsw %[x], %[high1], %[x]\n\t"
                "vpaddw %[y], %[s0], %[s0]\n\tvpaddw %[x], %[s1], %[s1]"
                : [x] "=&x"(x), [y] "=&x"(y), [s0] "+x"(first), [s1] "+x"(second)
                : [a] "m"(quad(a, j)), [b] "m"(quad(a, j + 4)), [low0] "x"(low[0]), [low1] "x"(low[1]),
                  [high0] "x"(high[0]), [high1] "x"(high[1]));
        }
    };
    static I dot4(const Quads& w, const std::int8_t* a) {
        return add_halves(add_products(_mm256_setzero_si256(), w, a));
    }
    /// Sum of (code - 8) * a. The int16 sums may wrap on their way; the result stays within 16256.
    static I dot4_less_eight(const Quads& w, const std::int8_t* a, const std::int16_t* minus_8) {
        return add_halves(add_products(broadcast(minus_8), w, a));
    }
    /// Sum of (code - z) * a; `z` as pairs of equal int16. The result stays within 30480.
    static I dot4_less(const Quads& w, I z, const std::int8_t* a, const std::int16_t* minus_8) {
        return add_halves(add_products(less_zero_points(z, minus_8), w, a));
    }
    /// Sum of scale * (code - 32) * a, `scales` and `offsets` (4 * scale) as pairs of int16 for the two halves of the
    /// group. Two pairs of products of 63 * 127 stay below 32004 in an int16.
    static I dot6(const Quads& w, I scales, I offsets, const std::int8_t* a, const std::int16_t* minus_8) {
        const auto two = [&](int j) {
            return _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(w.q[j], broadcast(a + 4 * j)),
                                                      _mm256_maddubs_epi16(w.q[j + 1], broadcast(a + 4 * j + 4))),
                                     scales);
        };
        const I sums = _mm256_add_epi32(_mm256_add_epi32(two(0), two(2)), _mm256_add_epi32(two(4), two(6)));
        return _mm256_add_epi32(sums, _mm256_madd_epi16(broadcast(minus_8), offsets));
    }
    /// Signed codes: |w| * sign(a, w) keeps a pair below 128 * 127 * 2 = 32512, so maddubs is exact. Widening both
    /// sides to int16 has fewer multiplies but ends in a horizontal add: measured equal, with twice the activation
    /// bytes.
    template <int Columns>
    static void dot8(const std::byte* w, const ActivationGroup* const (&a)[Columns], I (&sums)[Columns]) {
        const I ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            const I codes = load_words(w + 32 * j);
            const I magnitude = _mm256_abs_epi8(codes);
#pragma GCC unroll 8
            for (int c = 0; c < Columns; ++c) {
                const I pairs =
                    _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(broadcast(a[c]->codes + 4 * j), codes));
                const I quad = _mm256_madd_epi16(pairs, ones);
                sums[c] = j == 0 ? quad : _mm256_add_epi32(sums[c], quad);
            }
        }
    }
};

}  // namespace
}  // namespace perceptd::engine

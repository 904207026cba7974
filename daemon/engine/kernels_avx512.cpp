// The kernels on AVX-512 (F, BW, DQ, VL) with VNNI: the lanes of AVX2 with byte dot products, and vectors of sixteen
// rows. Its compiler flags are its own (meson.build): no other file may inline from here, which is why the lanes and
// all templates over them have internal linkage.

#include "engine/lanes_avx2.inl"

namespace perceptd::engine {
namespace {

struct Lanes : Avx2Lanes {
    static constexpr int kTile4 = 8;
    static constexpr int kTile8 = 8;
    static constexpr int kTileFloat = 8;
    static constexpr bool kPairsBlocks = false;
    static constexpr bool kWidensBlocks = true;

    static I quad_of(const std::int8_t* a, int j) { return broadcast(a + 4 * j); }
    /// `start` plus the sums of four products of a lane: unsigned codes, signed activations, never saturating.
    static I add_products(I start, const Quads& w, const std::int8_t* a) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            start = _mm256_dpbusd_epi32(start, w.q[j], quad_of(a, j));
        }
        return start;
    }
    static I dot4(const Quads& w, const std::int8_t* a) { return add_products(_mm256_setzero_si256(), w, a); }
    static I dot4_less_eight(const Quads& w, const std::int8_t* a, const std::int16_t* minus_8) {
        return add_products(sum_of_halves(minus_8), w, a);
    }
    static I dot4_less(const Quads& w, I z, const std::int8_t* a, const std::int16_t* minus_8) {
        return add_products(_mm256_madd_epi16(_mm256_srai_epi16(broadcast(minus_8), 3), z), w, a);
    }
    /// Signed codes plus 128 are unsigned; -128 * the sum of the activations takes that back.
    template <int Columns>
    static void dot8(const std::byte* w, const ActivationGroup* const (&a)[Columns], I (&sums)[Columns]) {
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            sums[c] = _mm256_madd_epi16(broadcast(a[c]->minus_8_sums), _mm256_set1_epi16(16));
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            const I codes = _mm256_xor_si256(load_words(w + 32 * j), _mm256_set1_epi8(-128));
#pragma GCC unroll 8
            for (int c = 0; c < Columns; ++c) {
                sums[c] = _mm256_dpbusd_epi32(sums[c], codes, quad_of(a[c]->codes, j));
            }
        }
    }

    /// Sixteen lanes: the rows of two blocks, `apart` bytes from each other.
    struct Wide {
        using F = __m512;
        using I = __m512i;
        struct Quads {
            I q[8];
        };

        static F set1(float v) { return _mm512_set1_ps(v); }
        static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
        static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
        static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
        static __m256 lower(F a) { return _mm512_castps512_ps256(a); }
        static __m256 upper(F a) { return _mm512_extractf32x8_ps(a, 1); }
        static F load_f16(const std::byte* p, std::size_t apart) {
            const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
            const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + apart));
            return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1));
        }
        static I load_u8(const std::byte* p, std::size_t apart) {
            const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
            const __m128i second = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + apart));
            return _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(first, second));
        }
        static I load_words(const std::byte* p, std::size_t apart) {
            return _mm512_inserti64x4(_mm512_castsi256_si512(Lanes::load_words(p)), Lanes::load_words(p + apart), 1);
        }
        static Quads load_nibbles(const std::byte* p, std::size_t apart) {
            Quads w;
            const I mask = _mm512_set1_epi8(0x0F);
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                const I both = load_words(p + 32 * j, apart);
                w.q[j] = _mm512_and_si512(both, mask);
                w.q[j + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
            }
            return w;
        }
        /// Signed codes plus 128.
        static Quads load_bytes(const std::byte* p, std::size_t apart) {
            Quads w;
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                w.q[j] = _mm512_xor_si512(load_words(p + 32 * j, apart), _mm512_set1_epi8(-128));
            }
            return w;
        }
        static I zero_words() { return _mm512_setzero_si512(); }
        static I set_words(short v) { return _mm512_set1_epi16(v); }
        /// Per lane the int16 pair (v, v); 0 <= v < 32768.
        static I both_words(I v) { return _mm512_or_si512(v, _mm512_slli_epi32(v, 16)); }
        static I broadcast(const void* p) {
            std::int32_t word = 0;
            __builtin_memcpy(&word, p, 4);
            return _mm512_set1_epi32(word);
        }
        static I multiply_words(const std::int16_t* pair, I words) {
            return _mm512_dpwssd_epi32(_mm512_setzero_si512(), words, broadcast(pair));
        }
        /// The same for an eighth of each of the pair.
        static I multiply_eighths(const std::int16_t* pair, I words) {
            return _mm512_madd_epi16(_mm512_srai_epi16(broadcast(pair), 3), words);
        }
        static I add_products(I start, const Quads& w, const std::int8_t* a) {
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                start = _mm512_dpbusd_epi32(start, w.q[j], broadcast(a + 4 * j));
            }
            return start;
        }
    };
};

}  // namespace
}  // namespace perceptd::engine

// The templates need the lanes first.
#include "engine/kernel_table.inl"
#include "engine/kernel_tables.hpp"

namespace perceptd::engine {

const KernelTable kAvx512Kernels = table_of(InstructionSet::Avx512);

}  // namespace perceptd::engine

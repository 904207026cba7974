// Eight lanes in plain C++: the definition of what every instruction set computes. std::fma is exact by the standard
// (hardware where the machine has it, else the C library), and -ffp-contract=off keeps everything else apart.
// Its compiler flags are its own (meson.build): no other file may inline from here, which is why the lanes and all
// templates over them have internal linkage.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine/activations.hpp"
#include "model/blocks.hpp"
#include "model/fp8.hpp"

namespace perceptd::engine {
namespace {

struct Lanes {
    static constexpr int kTile4 = 4;
    static constexpr bool kPairsBlocks = false;
    static constexpr bool kWidensBlocks = false;
    static constexpr bool kPairsTokens = false;
    static constexpr int kTile8 = 4;
    static constexpr int kTileFloat = 4;
    struct F {
        float v[8];
    };
    struct I {
        std::int32_t v[8];
    };
    template <typename Function>
    static F floats(Function f) {
        F r;
        for (int i = 0; i < 8; ++i) {
            r.v[i] = f(i);
        }
        return r;
    }
    template <typename Function>
    static I ints(Function f) {
        I r;
        for (int i = 0; i < 8; ++i) {
            r.v[i] = static_cast<std::int32_t>(f(i));
        }
        return r;
    }

    static F load(const float* p) {
        return floats([&](int i) { return p[i]; });
    }
    static void store(float* p, F a) { __builtin_memcpy(p, a.v, sizeof(a.v)); }
    static F set1(float x) {
        return floats([&](int) { return x; });
    }
    static F zero() { return set1(0.0F); }
    static F add(F a, F b) {
        return floats([&](int i) { return a.v[i] + b.v[i]; });
    }
    static F sub(F a, F b) {
        return floats([&](int i) { return a.v[i] - b.v[i]; });
    }
    static F mul(F a, F b) {
        return floats([&](int i) { return a.v[i] * b.v[i]; });
    }
    static F div(F a, F b) {
        return floats([&](int i) { return a.v[i] / b.v[i]; });
    }
    static F fma(F a, F b, F c) {
        return floats([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
    }
    static F sqrt(F a) {
        return floats([&](int i) { return std::sqrt(a.v[i]); });
    }
    static F max(F a, F b) {
        return floats([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
    }
    static F min(F a, F b) {
        return floats([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
    }
    static F abs(F a) {
        return floats([&](int i) { return std::fabs(a.v[i]); });
    }
    static F select_less(F a, F b, F x, F y) {
        return floats([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
    }
    static bool any_nan(F a) {
        bool any = false;
        for (float x : a.v) {
            any = any || x != x;
        }
        return any;
    }
    static float first(F a) { return a.v[0]; }
    template <typename T>
    static void keep_order(F&, T*&) {}

    static I set1(std::int32_t x) {
        return ints([&](int) { return x; });
    }
    static I add(I a, I b) {
        return ints([&](int i) { return static_cast<std::uint32_t>(a.v[i]) + static_cast<std::uint32_t>(b.v[i]); });
    }
    template <int Bits>
    static I shift_left(I a) {
        return ints([&](int i) { return static_cast<std::uint32_t>(a.v[i]) << Bits; });
    }
    template <int Bits>
    static I shift_right(I a) {
        return ints([&](int i) { return a.v[i] >> Bits; });
    }
    static I sub(I a, I b) {
        return ints([&](int i) { return static_cast<std::uint32_t>(a.v[i]) - static_cast<std::uint32_t>(b.v[i]); });
    }
    static I as_int(F a) { return std::bit_cast<I>(a); }
    static F as_float(I a) { return std::bit_cast<F>(a); }
    static F to_float(I a) {
        return floats([&](int i) { return static_cast<float>(a.v[i]); });
    }
    static I load_u8(const std::byte* p) {
        return ints([&](int i) { return std::to_integer<int>(p[i]); });
    }
    static I load_i8(const std::byte* p) {
        return ints([&](int i) { return static_cast<std::int8_t>(p[i]); });
    }
    /// To nearest even, because the sum's last bit is worth 1; |a| below 2^22.
    static I round(F a) { return sub(as_int(add(a, set1(12582912.0F))), set1(std::int32_t{0x4B400000})); }
    static void store_group(std::int8_t* p, I a, I b, I c, I d) {
        const I* const parts[4] = {&a, &b, &c, &d};
        for (std::size_t k = 0; k < kGroupSize; ++k) {
            p[place_in_group(k)] = static_cast<std::int8_t>(parts[k / 8]->v[k % 8]);
        }
    }
    static void store_i8(std::byte* p, I a) {
        for (int i = 0; i < 8; ++i) {
            p[i] = static_cast<std::byte>(a.v[i]);
        }
    }
    static std::int32_t sum(I a) {
        std::int32_t total = 0;
        for (std::int32_t x : a.v) {
            total += x;
        }
        return total;
    }

    template <typename T>
    static T read(const std::byte* p, int i) {
        T x;
        __builtin_memcpy(&x, p + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
        return x;
    }
    static F load_f16(const std::byte* p) {
        return floats([&](int i) { return model::decode_f16(read<std::uint16_t>(p, i)); });
    }
    static void store_f16(std::byte* p, F a) {
        for (int i = 0; i < 8; ++i) {
            const std::uint16_t code = model::encode_f16(a.v[i]);
            __builtin_memcpy(p + 2 * i, &code, 2);
        }
    }
    static F load_bf16(const std::byte* p) {
        return floats([&](int i) { return model::decode_bf16(read<std::uint16_t>(p, i)); });
    }
    template <int MantissaBits>
    static F load_fp8(const std::byte* p, float) {
        return floats([&](int i) {
            const auto code = std::to_integer<std::uint8_t>(p[i]);
            return model::decode_fp8(code, MantissaBits == 3 ? model::Fp8Format::E4m3 : model::Fp8Format::E5m2);
        });
    }

    static float tree_sum(F a) {
        const float* v = a.v;
        return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
    }
    static F sum8(const F (&v)[8]) {
        return floats([&](int i) { return tree_sum(v[i]); });
    }

    /// Two int16 in a lane.
    static std::int32_t low(std::int32_t x) { return static_cast<std::int16_t>(x & 0xFFFF); }
    static std::int32_t high(std::int32_t x) { return static_cast<std::int16_t>((x >> 16) & 0xFFFF); }
    static I join_words(I a, I b) {
        return ints([&](int i) {
            return (static_cast<std::uint32_t>(b.v[i]) << 16U) | (static_cast<std::uint32_t>(a.v[i]) & 0xFFFFU);
        });
    }
    static I sum_of_halves(const std::int16_t* halves) { return set1(std::int32_t{halves[0]} + halves[1]); }

    /// code[row][place]: 32 unsigned codes of each of 8 rows.
    struct Quads {
        std::uint8_t code[8][32];
    };
    static Quads load_nibbles(const std::byte* p) {
        Quads w;
        for (int j = 0; j < 4; ++j) {
            for (int b = 0; b < 32; ++b) {
                const auto both = std::to_integer<std::uint8_t>(p[32 * j + b]);
                w.code[b / 4][4 * j + b % 4] = both & 0x0F;
                w.code[b / 4][4 * j + 16 + b % 4] = both >> 4U;
            }
        }
        return w;
    }
    static Quads load_six_bits(const std::byte* p, const std::byte* upper) {
        Quads w = load_nibbles(p);
        for (int j = 0; j < 8; ++j) {
            for (int b = 0; b < 32; ++b) {
                const auto bits = std::to_integer<unsigned>(upper[32 * (j / 4) + b]) >> (2 * (j % 4));
                w.code[b / 4][4 * j + b % 4] |= static_cast<std::uint8_t>((bits & 3U) << 4U);
            }
        }
        return w;
    }
    /// Sum of code * a over one half of the group.
    static std::int32_t half(const Quads& w, int row, int which, const std::int8_t* a) {
        std::int32_t total = 0;
        for (int j = 0; j < 8; ++j) {
            const int at = 4 * j + 2 * which;
            total += w.code[row][at] * a[at] + w.code[row][at + 1] * a[at + 1];
        }
        return total;
    }
    static I dot4(const Quads& w, const std::int8_t* a) {
        return ints([&](int i) { return half(w, i, 0, a) + half(w, i, 1, a); });
    }
    static I dot4_less_eight(const Quads& w, const std::int8_t* a, const std::int16_t* minus_8) {
        return add(dot4(w, a), sum_of_halves(minus_8));
    }
    static I dot4_less(const Quads& w, I z, const std::int8_t* a, const std::int16_t* minus_8) {
        const std::int32_t minus_sum = (minus_8[0] + minus_8[1]) / 8;
        return add(dot4(w, a), ints([&](int i) { return low(z.v[i]) * minus_sum; }));
    }
    static I dot6(const Quads& w, I scales, I offsets, const std::int8_t* a, const std::int16_t* minus_8) {
        return ints([&](int i) {
            return low(scales.v[i]) * half(w, i, 0, a) + high(scales.v[i]) * half(w, i, 1, a) +
                   low(offsets.v[i]) * minus_8[0] + high(offsets.v[i]) * minus_8[1];
        });
    }
    template <int Columns>
    static void dot8(const std::byte* w, const ActivationGroup* const (&a)[Columns], I (&sums)[Columns]) {
        for (int c = 0; c < Columns; ++c) {
            sums[c] = ints([&](int row) {
                std::int32_t total = 0;
                for (int k = 0; k < 32; ++k) {
                    total += static_cast<std::int8_t>(w[32 * (k / 4) + 4 * row + k % 4]) * a[c]->codes[k];
                }
                return total;
            });
        }
    }
};

}  // namespace
}  // namespace perceptd::engine

// The templates need the lanes first.
#include "engine/kernel_table.inl"
#include "engine/kernel_tables.hpp"

namespace perceptd::engine {

const KernelTable kPortableKernels = table_of(InstructionSet::Portable);

}  // namespace perceptd::engine

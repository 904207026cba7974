// The kernels on AArch64 with int8 matrix products: the lanes of NEON with two tokens to an instruction.
// Its compiler flags are its own (meson.build): no other file may inline from here, which is why the lanes and all
// templates over them have internal linkage.

#include "engine/lanes_neon.inl"

namespace perceptd::engine {
namespace {

struct Lanes : NeonLanes {
    static constexpr bool kPairsTokens = true;

    /// One group's codes, two rows and eight codes of each to a vector: quads j and j + 1 of a row lie side by side.
    struct RowPairs {
        int8x16_t rows[4][4];  ///< [two quads][two rows]

        explicit RowPairs(const Quads& w) {
            const auto zip_low = [](int8x16_t x, int8x16_t y) {
                return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(x), vreinterpretq_s32_s8(y)));
            };
            const auto zip_high = [](int8x16_t x, int8x16_t y) {
                return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(x), vreinterpretq_s32_s8(y)));
            };
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                rows[j][0] = zip_low(w.a[2 * j], w.a[2 * j + 1]);
                rows[j][1] = zip_high(w.a[2 * j], w.a[2 * j + 1]);
                rows[j][2] = zip_low(w.b[2 * j], w.b[2 * j + 1]);
                rows[j][3] = zip_high(w.b[2 * j], w.b[2 * j + 1]);
            }
        }
        /// The sums of codes * activations of two tokens.
        void dot(const std::int8_t* a, const std::int8_t* b, I& first, I& second) const {
            int32x4_t sums[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                const int8x16_t tokens = vcombine_s8(vld1_s8(a + 8 * j), vld1_s8(b + 8 * j));
#pragma GCC unroll 4
                for (int pair = 0; pair < 4; ++pair) {
                    sums[pair] = vmmlaq_s32(sums[pair], rows[j][pair], tokens);
                }
            }
            first = {vuzp1q_s32(sums[0], sums[1]), vuzp1q_s32(sums[2], sums[3])};
            second = {vuzp2q_s32(sums[0], sums[1]), vuzp2q_s32(sums[2], sums[3])};
        }
    };
    template <int Columns>
    static void dot8(const std::byte* w, const ActivationGroup* const (&a)[Columns], I (&sums)[Columns]) {
        if constexpr (Columns == 1) {
            NeonLanes::dot8<1>(w, a, sums);
        } else {
            const RowPairs pairs(load_quads(w));
            I unused;
#pragma GCC unroll 8
            for (int c = 0; c < Columns; c += 2) {
                const bool is_pair = c + 1 < Columns;
                pairs.dot(a[c]->codes, a[is_pair ? c + 1 : c]->codes, sums[c], is_pair ? sums[c + 1] : unused);
            }
        }
    }
};

}  // namespace
}  // namespace perceptd::engine

// The templates need the lanes first.
#include "engine/kernel_table.inl"
#include "engine/kernel_tables.hpp"

namespace perceptd::engine {

const KernelTable kI8mmKernels = table_of(InstructionSet::I8mm);

}  // namespace perceptd::engine

// Matrix products of one row block with a tile of tokens, for every weight kind, written once over `Lanes` (eight lanes
// of one instruction set, see kernels_*.cpp). Everything here has internal linkage: each set compiles its own copy.
// Columns are tokens; each has its own accumulator, so the tile's width never changes a bit.
#pragma once

#include "engine/kernels.hpp"

namespace perceptd::engine {
namespace {

using F = Lanes::F;
using I = Lanes::I;

constexpr std::size_t kHalfVectorBytes = 16;  // eight F16

/// What a kind adds to the plain sum of codes: scale, zero point or minimum of group `j` of a chunk.
template <WeightKind Kind>
struct GroupOf {
    const std::byte* header;
    std::size_t j;

    static constexpr bool kHasMinimum = Kind == WeightKind::Q4_1 || Kind == WeightKind::Q4_K;

    F scale() const {
        if constexpr (Kind == WeightKind::Q4_K) {
            return Lanes::mul(Lanes::load_f16(header), Lanes::to_float(Lanes::load_u8(header + 32 + 8 * j)));
        } else if constexpr (Kind == WeightKind::Q6_K || Kind == WeightKind::Int4G128) {
            return Lanes::load_f16(header);
        } else {
            return Lanes::load_f16(header + kHalfVectorBytes * j);
        }
    }
    /// The minimum / -8, for the factor of ActivationGroup::minus_8_sums.
    F minimum() const {
        if constexpr (Kind == WeightKind::Q4_1) {
            return Lanes::mul(Lanes::load_f16(header + 64 + kHalfVectorBytes * j), Lanes::set1(-0.125F));
        } else {
            const F least = Lanes::mul(Lanes::load_f16(header + 16), Lanes::set1(0.125F));
            return Lanes::mul(least, Lanes::to_float(Lanes::load_u8(header + 96 + 8 * j)));
        }
    }
    I zero_points() const {
        const I z = Lanes::load_u8(header + (Kind == WeightKind::Int4G32 ? 64 + 8 * j : 16));
        return Lanes::join_words(z, z);
    }
};

/// What of a group is the same for all columns, kept in registers.
template <WeightKind Kind>
struct LoadedGroup {
    Lanes::Quads quads;
    I first;   ///< zero points, or scales of the two halves
    I second;  ///< 4 * scales of the two halves
    F scale;
    F minimum;

    LoadedGroup(const std::byte* codes, const GroupOf<Kind>& group) : scale(group.scale()) {
        if constexpr (Kind == WeightKind::Q6_K) {
            quads = Lanes::load_six_bits(codes, codes + 128);
            const I low = Lanes::load_i8(group.header + 32 + 16 * group.j);
            const I high = Lanes::load_i8(group.header + 40 + 16 * group.j);
            first = Lanes::join_words(low, high);
            second = Lanes::join_words(Lanes::shift_left<2>(low), Lanes::shift_left<2>(high));
        } else {
            quads = Lanes::load_nibbles(codes);
            if constexpr (GroupOf<Kind>::kHasMinimum) {
                minimum = group.minimum();
            } else if constexpr (Kind != WeightKind::Q4_0) {
                first = group.zero_points();
            }
        }
    }
    I dot(const ActivationGroup& a) const {
        if constexpr (Kind == WeightKind::Q4_0) {
            return Lanes::dot4_less_eight(quads, a.codes, a.minus_8_sums);
        } else if constexpr (Kind == WeightKind::Q6_K) {
            return Lanes::dot6(quads, first, second, a.codes, a.minus_8_sums);
        } else if constexpr (GroupOf<Kind>::kHasMinimum) {
            return Lanes::dot4(quads, a.codes);
        } else {
            return Lanes::dot4_less(quads, first, a.codes, a.minus_8_sums);
        }
    }
};

/// add_group() for sets that multiply two tokens at once (Lanes::kPairsTokens). `L` is Lanes, as a parameter so that
/// only such sets need what is used here.
template <WeightKind Kind, int Columns, typename L>
inline __attribute__((always_inline)) void add_group_by_tokens(const std::byte* codes, const GroupOf<Kind>& group,
                                                               const ActivationGroup* (&a)[Columns],
                                                               F (&acc)[Columns]) {
    const LoadedGroup<Kind> w(codes, group);
    const typename L::RowPairs pairs(w.quads);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; c += 2) {
        I sums[2];
        pairs.dot(a[c]->codes, a[c + 1 < Columns ? c + 1 : c]->codes, sums[0], sums[1]);
#pragma GCC unroll 2
        for (int i = c; i < Columns && i < c + 2; ++i) {
            I sum = sums[i - c];
            if constexpr (Kind == WeightKind::Q4_0) {
                sum = Lanes::add(sum, Lanes::sum_of_halves(a[i]->minus_8_sums));
            } else if constexpr (!GroupOf<Kind>::kHasMinimum) {
                sum = Lanes::add(sum, L::less_zero_points(w.first, a[i]->minus_8_sums));
            }
            const F a_scale = Lanes::set1(a[i]->scale);
            acc[i] = Lanes::fma(Lanes::mul(w.scale, a_scale), Lanes::to_float(sum), acc[i]);
            if constexpr (GroupOf<Kind>::kHasMinimum) {
                const F code_sum = Lanes::to_float(Lanes::sum_of_halves(a[i]->minus_8_sums));
                acc[i] = Lanes::fma(Lanes::mul(w.minimum, a_scale), code_sum, acc[i]);
            }
        }
    }
}

template <WeightKind Kind, int Columns>
inline __attribute__((always_inline)) void add_group(const std::byte* codes, const GroupOf<Kind>& group,
                                                     const ActivationGroup* (&a)[Columns], F (&acc)[Columns]) {
    if constexpr (Kind == WeightKind::Q8_0) {
        I sums[Columns];
        Lanes::dot8<Columns>(codes, a, sums);
        const F scale = group.scale();
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            acc[c] = Lanes::fma(Lanes::mul(scale, Lanes::set1(a[c]->scale)), Lanes::to_float(sums[c]), acc[c]);
        }
    } else if constexpr (Lanes::kPairsTokens && Kind != WeightKind::Q6_K && Columns > 1) {
        add_group_by_tokens<Kind, Columns, Lanes>(codes, group, a, acc);
    } else {
        const LoadedGroup<Kind> w(codes, group);
        // One column after the other: interleaving them would spill the accumulators.
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const F a_scale = Lanes::set1(a[c]->scale);
            acc[c] = Lanes::fma(Lanes::mul(w.scale, a_scale), Lanes::to_float(w.dot(*a[c])), acc[c]);
            if constexpr (GroupOf<Kind>::kHasMinimum) {
                const F code_sum = Lanes::to_float(Lanes::sum_of_halves(a[c]->minus_8_sums));
                acc[c] = Lanes::fma(Lanes::mul(w.minimum, a_scale), code_sum, acc[c]);
            }
            if (c + 1 < Columns) {
                Lanes::keep_order(acc[c], a[c + 1]);
            }
        }
    }
}

/// How far ahead of the codes in use the next ones are asked for. A plain read loop loses by this, but a kernel's
/// instructions leave too few loads in flight: one token reached 0.70 of the read bandwidth without, 0.86 with it.
constexpr std::size_t kPrefetchBytes = 3072;

/// acc[c] = row block * token c over all of K.
template <WeightKind Kind, int Columns>
void integer_block(const std::byte* block, std::size_t groups, const ActivationGroup* first, std::size_t stride,
                   F (&acc)[Columns]) {
    constexpr ChunkShape shape = chunk_shape_of(Kind);
    const ActivationGroup* a[Columns];
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
        a[c] = first + static_cast<std::size_t>(c) * stride;
        acc[c] = Lanes::zero();
    }
    for (std::size_t g = 0; g < groups; g += shape.groups, block += shape.bytes()) {
        const std::size_t here = groups - g < shape.groups ? groups - g : shape.groups;
        for (std::size_t j = 0; j < here; ++j) {
            const std::byte* ahead = block + shape.header_bytes + j * shape.group_bytes + kPrefetchBytes;
#pragma GCC unroll 4
            for (std::size_t line = 0; line < shape.group_bytes; line += 64) {
                __builtin_prefetch(ahead + line);
            }
            add_group<Kind, Columns>(block + shape.header_bytes + j * shape.group_bytes, GroupOf<Kind>{block, j}, a,
                                     acc);
#pragma GCC unroll 8
            for (int c = 0; c < Columns; ++c) {
                ++a[c];
            }
        }
    }
}

template <WeightKind Kind>
inline __attribute__((always_inline)) F load_eight(const std::byte* p) {
    if constexpr (Kind == WeightKind::F32) {
        return Lanes::load(reinterpret_cast<const float*>(p));
    } else if constexpr (Kind == WeightKind::F16) {
        return Lanes::load_f16(p);
    } else if constexpr (Kind == WeightKind::Bf16) {
        return Lanes::load_bf16(p);
    } else if constexpr (Kind == WeightKind::Fp8E4m3) {
        return Lanes::load_fp8<3>(p, 0x1p120F);
    } else {
        return Lanes::load_fp8<2>(p, 0x1p112F);
    }
}

template <WeightKind Kind, int Columns>
void float_block(const std::byte* block, std::size_t groups, const float* first, std::size_t stride,
                 const float* row_scales, F (&acc)[Columns]) {
    constexpr std::size_t kBytes = chunk_shape_of(Kind).group_bytes / kGroupSize;
    F odd[Columns];
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
        acc[c] = Lanes::zero();
        odd[c] = Lanes::zero();
    }
    for (std::size_t k = 0; k < groups * kGroupSize; k += 2, block += 2 * kBytes) {
        const F even_weights = load_eight<Kind>(block);
        const F odd_weights = load_eight<Kind>(block + kBytes);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const float* x = first + static_cast<std::size_t>(c) * stride + k;
            acc[c] = Lanes::fma(even_weights, Lanes::set1(x[0]), acc[c]);
            odd[c] = Lanes::fma(odd_weights, Lanes::set1(x[1]), odd[c]);
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
        acc[c] = Lanes::add(acc[c], odd[c]);
        if constexpr (Kind == WeightKind::Fp8E4m3 || Kind == WeightKind::Fp8E5m2) {
            acc[c] = Lanes::mul(acc[c], Lanes::load(row_scales));
        }
    }
}

}  // namespace
}  // namespace perceptd::engine

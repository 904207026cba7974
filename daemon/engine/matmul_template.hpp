// Matrix products of one row block with a tile of tokens, for every weight kind, written once over `Lanes` (eight lanes
// of one instruction set, see lanes_*.hpp). Everything here has internal linkage: each set compiles its own copy.
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
    F minimum() const {
        if constexpr (Kind == WeightKind::Q4_1) {
            return Lanes::load_f16(header + 64 + kHalfVectorBytes * j);
        } else {
            return Lanes::negate(
                Lanes::mul(Lanes::load_f16(header + 16), Lanes::to_float(Lanes::load_u8(header + 96 + 8 * j))));
        }
    }
    /// Words that half_dot() turns into zero point * sum of codes.
    I zero_point_words() const {
        if constexpr (Kind == WeightKind::Q4_0) {
            return Lanes::set1(0x00080008);
        } else if constexpr (Kind == WeightKind::Int4G32) {
            return Lanes::twin_words(Lanes::load_u8(header + 64 + 8 * j));
        } else {
            return Lanes::twin_words(Lanes::load_u8(header + 16));
        }
    }
};

template <WeightKind Kind, int Columns>
inline __attribute__((always_inline)) void group_sums(const std::byte* codes, const GroupOf<Kind>& group,
                                                      const ActivationGroup* const (&a)[Columns], I (&sums)[Columns]) {
    if constexpr (Kind == WeightKind::Q8_0) {
        const std::int8_t* columns[Columns];
        for (int c = 0; c < Columns; ++c) {
            columns[c] = a[c]->codes;
        }
        Lanes::dot8<Columns>(codes, columns, sums);
    } else if constexpr (Kind == WeightKind::Q6_K) {
        const Lanes::Quads w = Lanes::load_six_bits(codes, codes + 128);
        const I scale0 = Lanes::load_i8(group.header + 32 + 16 * group.j);
        const I scale1 = Lanes::load_i8(group.header + 40 + 16 * group.j);
        const I twin0 = Lanes::twin_words(scale0);
        const I twin1 = Lanes::twin_words(scale1);
        const I offset = Lanes::join_words(Lanes::shift_left<5>(scale0), Lanes::shift_left<5>(scale1));
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            sums[c] = Lanes::sub(Lanes::dot6(w, twin0, twin1, a[c]->codes), Lanes::half_dot(offset, a[c]->half_sums));
        }
    } else {
        const Lanes::Quads w = Lanes::load_nibbles(codes);
        if constexpr (GroupOf<Kind>::kHasMinimum) {
#pragma GCC unroll 8
            for (int c = 0; c < Columns; ++c) {
                sums[c] = Lanes::dot4(w, a[c]->codes);
            }
        } else {
            const I zero_point = group.zero_point_words();
#pragma GCC unroll 8
            for (int c = 0; c < Columns; ++c) {
                sums[c] = Lanes::sub(Lanes::dot4(w, a[c]->codes), Lanes::half_dot(zero_point, a[c]->half_sums));
            }
        }
    }
}

template <WeightKind Kind, int Columns>
inline __attribute__((always_inline)) void add_group(const std::byte* codes, const GroupOf<Kind>& group,
                                                     const ActivationGroup* const (&a)[Columns], F (&acc)[Columns]) {
    I sums[Columns];
    group_sums<Kind, Columns>(codes, group, a, sums);
    const F scale = group.scale();
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
        acc[c] = Lanes::fma(Lanes::mul(scale, Lanes::set1(a[c]->scale)), Lanes::to_float(sums[c]), acc[c]);
    }
    if constexpr (GroupOf<Kind>::kHasMinimum) {
        const F minimum = group.minimum();
        const I ones = Lanes::set1(0x00010001);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const F code_sum = Lanes::to_float(Lanes::half_dot(ones, a[c]->half_sums));
            acc[c] = Lanes::fma(Lanes::mul(minimum, Lanes::set1(a[c]->scale)), code_sum, acc[c]);
        }
    }
}

/// acc[c] = row block * token c over all of K.
template <WeightKind Kind, int Columns>
void integer_block(const std::byte* block, std::size_t groups, const ActivationGroup* first, std::size_t stride,
                   F (&acc)[Columns]) {
    constexpr ChunkShape shape = chunk_shape_of(Kind);
    const ActivationGroup* a[Columns];
    for (int c = 0; c < Columns; ++c) {
        a[c] = first + static_cast<std::size_t>(c) * stride;
        acc[c] = Lanes::zero();
    }
    for (std::size_t g = 0; g < groups; g += shape.groups, block += shape.bytes()) {
        const std::size_t here = groups - g < shape.groups ? groups - g : shape.groups;
        for (std::size_t j = 0; j < here; ++j) {
            add_group<Kind, Columns>(block + shape.header_bytes + j * shape.group_bytes, GroupOf<Kind>{block, j}, a,
                                     acc);
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
void float_block(const std::byte* block, std::size_t groups, const float* first, std::size_t stride, float tensor_scale,
                 F (&acc)[Columns]) {
    constexpr std::size_t kBytes = chunk_shape_of(Kind).group_bytes / kGroupSize;
    F odd[Columns];
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
    for (int c = 0; c < Columns; ++c) {
        acc[c] = Lanes::add(acc[c], odd[c]);
        if constexpr (Kind == WeightKind::Fp8E4m3 || Kind == WeightKind::Fp8E5m2) {
            acc[c] = Lanes::mul(acc[c], Lanes::set1(tensor_scale));
        }
    }
}

}  // namespace
}  // namespace perceptd::engine

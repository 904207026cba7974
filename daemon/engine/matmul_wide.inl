// Matrix products of two row blocks at once in vectors of sixteen rows, for sets whose dot products add four bytes into
// an int32 (Lanes::kWidensBlocks): all kinds of 4-bit codes and Q8_0. A vector's lower half is the first block, its
// upper half the second. Same sums in the same order as integer_block(); the columns' sums stay in registers.
// `L` is Lanes, as a parameter so that only sets with such vectors need what is used here.
#pragma once

#include "engine/matmul.inl"

namespace perceptd::engine {
namespace {

/// Group `j` of the chunks whose headers are at `header` and `block_bytes` behind it.
template <WeightKind Kind, typename L>
struct WideGroup {
    using W = typename L::Wide;
    const std::byte* header;
    std::size_t block_bytes;
    std::size_t j;

    static constexpr bool kHasMinimum = GroupOf<Kind>::kHasMinimum;

    typename W::F scale() const {
        if constexpr (Kind == WeightKind::Q4_K) {
            return W::mul(W::load_f16(header, block_bytes), W::to_float(W::load_u8(header + 32 + 8 * j, block_bytes)));
        } else if constexpr (Kind == WeightKind::Int4G128) {
            return W::load_f16(header, block_bytes);
        } else {
            return W::load_f16(header + kHalfVectorBytes * j, block_bytes);
        }
    }
    /// As GroupOf::minimum().
    typename W::F minimum() const {
        if constexpr (Kind == WeightKind::Q4_1) {
            return W::mul(W::load_f16(header + 64 + kHalfVectorBytes * j, block_bytes), W::set1(-0.125F));
        } else {
            const typename W::F least = W::mul(W::load_f16(header + 16, block_bytes), W::set1(0.125F));
            return W::mul(least, W::to_float(W::load_u8(header + 96 + 8 * j, block_bytes)));
        }
    }
    /// What the sum of a column begins with: what the unsigned codes are too large by, times the activations.
    typename W::I offsets() const {
        if constexpr (Kind == WeightKind::Q4_0) {
            return W::set_words(1);
        } else if constexpr (Kind == WeightKind::Q8_0) {
            return W::set_words(16);
        } else if constexpr (!kHasMinimum) {
            return W::both_words(W::load_u8(header + (Kind == WeightKind::Int4G32 ? 64 + 8 * j : 16), block_bytes));
        } else {
            return W::set_words(0);
        }
    }
    typename W::I first_sum(typename W::I offsets, const ActivationGroup& a) const {
        if constexpr (kHasMinimum) {
            return W::zero_words();
        } else if constexpr (Kind == WeightKind::Q4_0 || Kind == WeightKind::Q8_0) {
            return W::multiply_words(a.minus_8_sums, offsets);
        } else {
            return W::multiply_eighths(a.minus_8_sums, offsets);
        }
    }
};

template <WeightKind Kind, int Columns, typename L>
inline __attribute__((always_inline)) void add_group_wide(const std::byte* codes, const WideGroup<Kind, L>& group,
                                                          const ActivationGroup* a, std::size_t stride,
                                                          typename L::Wide::F (&acc)[Columns]) {
    using W = typename L::Wide;
    typename W::Quads quads;
    if constexpr (Kind == WeightKind::Q8_0) {
        quads = W::load_bytes(codes, group.block_bytes);
    } else {
        quads = W::load_nibbles(codes, group.block_bytes);
    }
    const typename W::I offsets = group.offsets();
    const typename W::F scale = group.scale();
    typename W::F minimum = scale;
    if constexpr (WideGroup<Kind, L>::kHasMinimum) {
        minimum = group.minimum();
    }
#pragma GCC unroll 16
    for (int c = 0; c < Columns; ++c, a += stride) {
        const typename W::I sum = W::add_products(group.first_sum(offsets, *a), quads, a->codes);
        const typename W::F a_scale = W::set1(a->scale);
        acc[c] = W::fma(W::mul(scale, a_scale), W::to_float(sum), acc[c]);
        if constexpr (WideGroup<Kind, L>::kHasMinimum) {
            const typename W::F all = W::to_float(W::multiply_words(a->minus_8_sums, W::set_words(1)));
            acc[c] = W::fma(W::mul(minimum, a_scale), all, acc[c]);
        }
    }
}

/// sums[b][c] = row block b * token c over all of K; the second block follows `block` by `block_bytes`.
template <WeightKind Kind, int Columns, typename L>
void integer_block_wide(const std::byte* block, std::size_t block_bytes, std::size_t groups, const ActivationGroup* a,
                        std::size_t stride, F (&sums)[2][Columns]) {
    using W = typename L::Wide;
    constexpr ChunkShape shape = chunk_shape_of(Kind);
    typename W::F acc[Columns];
#pragma GCC unroll 16
    for (int c = 0; c < Columns; ++c) {
        acc[c] = W::set1(0.0F);
    }
    for (std::size_t g = 0; g < groups; g += shape.groups, block += shape.bytes()) {
        const std::size_t here = groups - g < shape.groups ? groups - g : shape.groups;
        for (std::size_t j = 0; j < here; ++j, ++a) {
            const std::byte* codes = block + shape.header_bytes + j * shape.group_bytes;
#pragma GCC unroll 4
            for (std::size_t line = 0; line < shape.group_bytes; line += 64) {
                __builtin_prefetch(codes + 2 * block_bytes + line, 0, kIntoL2);
                __builtin_prefetch(codes + 3 * block_bytes + line, 0, kIntoL2);
            }
            add_group_wide<Kind, Columns, L>(codes, {block, block_bytes, j}, a, stride, acc);
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < Columns; ++c) {
        sums[0][c] = W::lower(acc[c]);
        sums[1][c] = W::upper(acc[c]);
    }
}

}  // namespace
}  // namespace perceptd::engine

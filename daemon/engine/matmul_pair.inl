// Matrix products of two row blocks at once with a tile of tokens, for the kinds of 4-bit codes: an activation quad is
// loaded once for both blocks. A core that shares its units with another thread is bound by the number of its
// instructions here, and the shared loads are a fifth of them. Same sums in the same order as integer_block().
// `L` is Lanes, as a parameter so that only sets with Lanes::kPairsBlocks need what is used here.
#pragma once

#include "engine/matmul.inl"

namespace perceptd::engine {
namespace {

constexpr bool has_nibbles(WeightKind kind) {
    return is_integer(kind) && kind != WeightKind::Q6_K && kind != WeightKind::Q8_0;
}

/// Where the int16 sums of a group begin: what its codes are too large by, times the activations.
template <WeightKind Kind, typename L>
inline __attribute__((always_inline)) I first_sums(const GroupOf<Kind>& group, const ActivationGroup& a) {
    if constexpr (Kind == WeightKind::Q4_0) {
        return L::broadcast(a.minus_8_sums);
    } else if constexpr (GroupOf<Kind>::kHasMinimum) {
        return Lanes::set1(0);
    } else {
        return L::less_zero_points(group.zero_points(), a.minus_8_sums);
    }
}

/// sums[c] += group * column c, the float end of a group as in add_group().
template <WeightKind Kind, int Columns, typename L>
inline __attribute__((always_inline)) void add_scaled(const GroupOf<Kind>& group, const I (&codes)[Columns],
                                                      const ActivationGroup* a, std::size_t stride,
                                                      float (*sums)[kRowsPerBlock]) {
    const F scale = group.scale();
    F minimum = scale;
    if constexpr (GroupOf<Kind>::kHasMinimum) {
        minimum = group.minimum();
    }
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c, a += stride) {
        const F a_scale = Lanes::set1(a->scale);
        const F code_sum = Lanes::to_float(L::add_halves(codes[c]));
        F sum = Lanes::fma(Lanes::mul(scale, a_scale), code_sum, Lanes::load(sums[c]));
        if constexpr (GroupOf<Kind>::kHasMinimum) {
            const F all = Lanes::to_float(L::sum_of_halves(a->minus_8_sums));
            sum = Lanes::fma(Lanes::mul(minimum, a_scale), all, sum);
        }
        Lanes::store(sums[c], sum);
    }
}

template <WeightKind Kind, int Columns, typename L>
inline __attribute__((always_inline)) void add_group_pair(const std::byte* codes, std::size_t block_bytes,
                                                          const GroupOf<Kind> (&group)[2], const ActivationGroup* a,
                                                          std::size_t stride,
                                                          float (&sums)[2][Columns][kRowsPerBlock]) {
    constexpr std::size_t kVectorBytes = 32;
    I first[Columns];
    I second[Columns];
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
        const ActivationGroup& column = a[static_cast<std::size_t>(c) * stride];
        first[c] = first_sums<Kind, L>(group[0], column);
        second[c] = first_sums<Kind, L>(group[1], column);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const typename L::NibblePair w(codes + static_cast<std::size_t>(j) * kVectorBytes, block_bytes);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            w.add_products(a[static_cast<std::size_t>(c) * stride].codes, j, first[c], second[c]);
        }
    }
    add_scaled<Kind, Columns, L>(group[0], first, a, stride, sums[0]);
    add_scaled<Kind, Columns, L>(group[1], second, a, stride, sums[1]);
}

/// The same place of the next pair is asked for: two streams at a fixed distance would ask for what is already here at
/// the end of a block, and miss the begin of the next.
constexpr int kIntoL2 = 2;

/// sums[b][c] = row block b * token c over all of K; the second block follows `block` by `block_bytes`.
template <WeightKind Kind, int Columns, typename L>
void integer_block_pair(const std::byte* block, std::size_t block_bytes, std::size_t groups, const ActivationGroup* a,
                        std::size_t stride, float (&sums)[2][Columns][kRowsPerBlock]) {
    constexpr ChunkShape shape = chunk_shape_of(Kind);
    __builtin_memset(sums, 0, sizeof(sums));
    for (std::size_t g = 0; g < groups; g += shape.groups, block += shape.bytes()) {
        const std::size_t here = groups - g < shape.groups ? groups - g : shape.groups;
        for (std::size_t j = 0; j < here; ++j, ++a) {
            const std::byte* codes = block + shape.header_bytes + j * shape.group_bytes;
#pragma GCC unroll 2
            for (std::size_t line = 0; line < shape.group_bytes; line += 64) {
                __builtin_prefetch(codes + 2 * block_bytes + line, 0, kIntoL2);
                __builtin_prefetch(codes + 3 * block_bytes + line, 0, kIntoL2);
            }
            add_group_pair<Kind, Columns, L>(codes, block_bytes, {{block, j}, {block + block_bytes, j}}, a, stride,
                                             sums);
        }
    }
}

}  // namespace
}  // namespace perceptd::engine

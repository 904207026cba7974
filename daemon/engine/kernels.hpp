// The kernels of one instruction set, as a table of functions: the seam between operations and machine code.
// Every entry is a pure function of its arguments with the same bits in every table; none allocates, locks or throws.
//
// Order of float operations (the definition; the portable table spells it in plain C++):
//   integer kinds   for each group of 32 ascending: acc = fma(s_w * s_a, float(exact int32 sum), acc);
//                   kinds with a minimum then: acc = fma((min_w / -8) * s_a, float(-8 * sum of codes), acc)
//   float kinds     two chains, even and odd k, each fma ascending; even + odd; times the row's scale (FP8 only)
//   reductions      lane i of 8 takes elements i, i+8, ...; then ((0+4)+(1+5)) + ((2+6)+(3+7))
// A NaN's sign and payload are unspecified: NaN is reported by the kernels that meet input, never computed with.
// Lanes are rows, not pieces of K: a product never needs a horizontal sum, and tails of rows cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/activations.hpp"
#include "engine/instruction_set.hpp"
#include "engine/kv_pages.hpp"
#include "engine/weights.hpp"

namespace perceptd::engine {

/// The right side of a matrix product: `codes` for integer kinds, `floats` for float kinds.
struct LinearInput {
    ActivationView codes;
    FloatView floats;
    std::size_t tokens = 0;
};

/// Which two elements a rotation pairs: (2i, 2i+1) in Norm order, (i, i + d/2) in Neox order.
enum class RotaryOrder : std::uint8_t { Norm, Neox };

/// Queries of one KV head and one piece of tokens; see attention.hpp, which cuts an operation into these.
struct AttentionPiece;

struct KernelTable {
    InstructionSet set;

    /// Quantizes `group_count` groups of 32; `multiplier` (per channel) may be null. False: NaN or infinity was met.
    bool (*quantize)(const float* values, const float* multiplier, std::size_t group_count,
                     ActivationGroup* out) noexcept;
    /// out = x / sqrt(mean(x^2) + epsilon) * weight. `count` a multiple of 8; `out` may be `x`.
    void (*rms_norm)(const float* x, const float* weight, float epsilon, std::size_t count, float* out) noexcept;
    /// out = (x - mean) / sqrt(variance + epsilon) * weight + bias; `bias` may be null.
    void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon, std::size_t count,
                       float* out) noexcept;
    /// out = silu(gate) * up, silu(x) = x / (1 + exp(-x)). All element-wise: `count` a multiple of 8, in place allowed.
    void (*silu_multiply)(const float* gate, const float* up, std::size_t count, float* out) noexcept;
    /// The tanh form of GELU.
    void (*gelu)(const float* x, std::size_t count, float* out) noexcept;
    void (*exponential)(const float* x, std::size_t count, float* out) noexcept;
    void (*add)(const float* a, const float* b, std::size_t count, float* out) noexcept;
    /// In-place softmax; `count` a multiple of 8.
    void (*softmax)(float* x, std::size_t count) noexcept;
    float (*dot)(const float* a, const float* b, std::size_t count) noexcept;
    /// Rotates one head of `dimension` (multiple of 16) floats in place; `cosines`, `sines`: dimension/2 each.
    void (*rotate)(float* head, const float* cosines, const float* sines, std::size_t dimension,
                   RotaryOrder order) noexcept;
    /// Encodes one K or V row; false: NaN or infinity was met.
    bool (*encode_kv)(KvFormat format, const float* row, std::size_t dimension, std::byte* out) noexcept;
    void (*decode_kv)(KvFormat format, const std::byte* row, std::size_t dimension, float* out) noexcept;
    /// out[token * out_stride + row - 8 * block_begin] for the rows of blocks [block_begin, block_end) below
    /// weights.rows. Best in ranges of a few blocks for few tokens, about 128 KiB of weights for many.
    void (*linear)(const WeightView& weights, const LinearInput& input, std::size_t block_begin, std::size_t block_end,
                   float* out, std::size_t out_stride) noexcept;
    void (*attend)(const AttentionPiece& piece) noexcept;
};

/// The table of an available set. Throws Error (Unsupported) otherwise. Lives for ever.
const KernelTable& kernels_of(InstructionSet set);

}  // namespace perceptd::engine

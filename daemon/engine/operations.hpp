// The operations that an executor strings together. Each is called by every worker of a team with equal arguments,
// splits rows, heads or tokens (never K) with Worker::share(), and has no barrier at its end: the executor places
// barriers where the next operation reads what others wrote. Fused and unfused forms give the same bits.
#pragma once

#include <atomic>
#include <cstddef>

#include "engine/activations.hpp"
#include "engine/kernels.hpp"
#include "engine/rotary.hpp"
#include "engine/weights.hpp"
#include "engine/worker_team.hpp"

namespace perceptd::engine {

/// Set when a NaN or an infinity was met; the pass's results are then to be thrown away. Never cleared here.
using FaultFlag = std::atomic<bool>;

/// Shared: each token once, a barrier needed after. EachWorker: every worker does all tokens into its own buffer
/// (cheaper than a barrier for few tokens).
enum class Placement : std::uint8_t { Shared, EachWorker };

struct NormWeights {
    const float* weight = nullptr;
    const float* bias = nullptr;  ///< not null or `is_layer_norm`: LayerNorm
    float epsilon = 1e-5F;
    bool is_layer_norm = false;
};

/// out = norm(x), rows of `columns`.
void normalize(Worker& worker, const KernelTable& kernels, Placement placement, FloatView x, std::size_t tokens,
               std::size_t columns, const NormWeights& norm, MutableFloatView out) noexcept;
/// Quantizes rows; `multiplier` per channel or null.
void quantize(Worker& worker, const KernelTable& kernels, Placement placement, FloatView x, std::size_t tokens,
              std::size_t columns, const float* multiplier, ActivationGroup* out, std::size_t out_stride,
              FaultFlag& fault) noexcept;
/// normalize + quantize without the tensor between; `scratch`: `columns` floats of this worker's own.
void normalize_quantize(Worker& worker, const KernelTable& kernels, Placement placement, FloatView x,
                        std::size_t tokens, std::size_t columns, const NormWeights& norm, const float* multiplier,
                        float* scratch, ActivationGroup* out, std::size_t out_stride, FaultFlag& fault) noexcept;

/// What follows the product, in this order: + bias[row], + residual[token][row].
struct LinearEpilogue {
    const float* bias = nullptr;
    FloatView residual;  ///< values null: none; may be the output itself
};

/// out = weights * input (+ epilogue).
void linear(Worker& worker, const KernelTable& kernels, const WeightView& weights, const LinearInput& input,
            const LinearEpilogue& epilogue, MutableFloatView out) noexcept;
/// out = silu(gate * input) * (up * input), as floats.
void gated_linear(Worker& worker, const KernelTable& kernels, const WeightView& gate, const WeightView& up,
                  const LinearInput& input, MutableFloatView out) noexcept;
/// The same, quantized at once: each worker finishes whole groups of 32 rows. Rows must be a multiple of 32.
void gated_linear_quantize(Worker& worker, const KernelTable& kernels, const WeightView& gate, const WeightView& up,
                           const LinearInput& input, const float* multiplier, ActivationGroup* out,
                           std::size_t out_stride, FaultFlag& fault) noexcept;

/// Positions and cache slots of a pass's tokens.
struct TokenPlaces {
    const std::uint32_t* positions = nullptr;  ///< per token, for the rotation
    const std::uint32_t* slots = nullptr;      ///< per token, where K and V go
};

/// The projections of one attention layer. Head norms (per head RMSNorm of q and k) may be null.
struct QkvWeights {
    WeightView q, k, v;
    const float* q_bias = nullptr;
    const float* k_bias = nullptr;
    const float* v_bias = nullptr;
    const float* q_norm = nullptr;
    const float* k_norm = nullptr;
    float norm_epsilon = 1e-5F;
    const RotaryTable* rotary = nullptr;  ///< null: no rotation
    RotaryOrder order = RotaryOrder::Norm;
};

/// Projects, rotates, writes K and V into the cache and q into `queries`; pieces are heads.
void project_qkv(Worker& worker, const KernelTable& kernels, const QkvWeights& weights, const LinearInput& input,
                 const TokenPlaces& places, const KvView& kv, std::size_t layer, MutableFloatView queries,
                 FaultFlag& fault) noexcept;

}  // namespace perceptd::engine

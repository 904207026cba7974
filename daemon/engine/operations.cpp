#include "engine/operations.hpp"

#include "base/contract.hpp"

namespace perceptd::engine {
namespace {

/// A range of row blocks that keeps its weights in L2 while all tiles of tokens pass over it, and that is small enough
/// for the workers to finish together.
std::size_t blocks_per_piece(const WeightView& weights, std::size_t workers) noexcept {
    // Less makes the stream from memory start anew too often: measured at 18, 36, 72 and 128 KiB.
    constexpr std::size_t kBytes = 128 * 1024;
    constexpr std::size_t kPiecesPerWorker = 8;
    const std::size_t by_cache = kBytes / weights.row_block_bytes();
    const std::size_t by_balance = weights.row_blocks() / (workers * kPiecesPerWorker);
    const std::size_t blocks = by_cache < by_balance ? by_cache : by_balance;
    return blocks == 0 ? 1 : blocks;
}

std::size_t input_bytes(const WeightView& weights, const LinearInput& input) noexcept {
    const std::size_t row =
        is_integer(weights.kind) ? weights.groups() * sizeof(ActivationGroup) : weights.columns * sizeof(float);
    return input.tokens * row;
}

/// Counted once per operation, by the worker that takes piece 0.
void count_product(Worker& worker, const WeightView& weights, const LinearInput& input, std::size_t out_bytes,
                   bool counts_input) noexcept {
    worker.traffic.weight_bytes += weights.bytes();
    worker.traffic.activation_bytes += (counts_input ? input_bytes(weights, input) : 0) + out_bytes;
    worker.traffic.multiply_count += std::uint64_t{weights.rows} * weights.columns * input.tokens;
}

void add_bias(float* out, const float* bias, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        out[i] += bias[i];
    }
}

void normalize_row(const KernelTable& kernels, const float* x, std::size_t columns, const NormWeights& norm,
                   float* out) noexcept {
    if (norm.is_layer_norm || norm.bias != nullptr) {
        kernels.layer_norm(x, norm.weight, norm.bias, norm.epsilon, columns, out);
    } else {
        kernels.rms_norm(x, norm.weight, norm.epsilon, columns, out);
    }
}

template <typename Body>
void for_tokens(Worker& worker, Placement placement, std::size_t tokens, Body&& body) noexcept {
    if (placement == Placement::Shared) {
        worker.share(tokens, body);
        return;
    }
    for (std::size_t token = 0; token < tokens; ++token) {
        body(token);
    }
}

constexpr std::size_t kTokensPerTile = 16;
constexpr std::size_t kBlocksPerGroup = kGroupSize / kRowsPerBlock;

/// Tokens [begin, begin + count) of `input`.
LinearInput part_of(const LinearInput& input, std::size_t begin, std::size_t count) noexcept {
    LinearInput part = input;
    part.codes.groups += part.codes.groups != nullptr ? begin * input.codes.row_stride : 0;
    part.floats.values += part.floats.values != nullptr ? begin * input.floats.row_stride : 0;
    part.tokens = count;
    return part;
}

/// Groups of 32 rows that one worker takes at once: gate and up together as much as a piece of linear().
std::size_t groups_per_piece(const WeightView& gate, std::size_t workers) noexcept {
    const std::size_t groups = blocks_per_piece(gate, workers) / (2 * kBlocksPerGroup);
    return groups == 0 ? 1 : groups;
}

template <typename Body>
void share_groups(Worker& worker, const WeightView& gate, Body&& body) noexcept {
    const std::size_t groups = (gate.row_blocks() + kBlocksPerGroup - 1) / kBlocksPerGroup;
    const std::size_t step = groups_per_piece(gate, worker.count());
    worker.share((groups + step - 1) / step, [&](std::size_t piece) {
        for (std::size_t group = piece * step; group < groups && group < (piece + 1) * step; ++group) {
            body(group);
        }
    });
}

/// silu(gate) * up of one group of 32 rows for a tile of tokens, handed to `store(token, values)`.
template <typename Store>
void gated_group(const KernelTable& kernels, const WeightView& gate, const WeightView& up, const LinearInput& input,
                 std::size_t group, Store&& store) noexcept {
    const std::size_t begin = group * kBlocksPerGroup;
    const std::size_t end = begin + kBlocksPerGroup < gate.row_blocks() ? begin + kBlocksPerGroup : gate.row_blocks();
    float gates[kTokensPerTile * kGroupSize];
    float ups[kTokensPerTile * kGroupSize];
    for (std::size_t token = 0; token < input.tokens; token += kTokensPerTile) {
        const std::size_t rest = input.tokens - token;
        const LinearInput tile = part_of(input, token, rest < kTokensPerTile ? rest : kTokensPerTile);
        kernels.linear(gate, tile, begin, end, gates, kGroupSize);
        kernels.linear(up, tile, begin, end, ups, kGroupSize);
        kernels.silu_multiply(gates, ups, tile.tokens * kGroupSize, gates);
        for (std::size_t i = 0; i < tile.tokens; ++i) {
            store(token + i, gates + i * kGroupSize);
        }
    }
}

}  // namespace

void normalize(Worker& worker, const KernelTable& kernels, Placement placement, FloatView x, std::size_t tokens,
               std::size_t columns, const NormWeights& norm, MutableFloatView out) noexcept {
    for_tokens(worker, placement, tokens, [&](std::size_t token) {
        normalize_row(kernels, x.row(token), columns, norm, out.row(token));
        worker.traffic.activation_bytes += 2 * columns * sizeof(float);
    });
}

void quantize(Worker& worker, const KernelTable& kernels, Placement placement, FloatView x, std::size_t tokens,
              std::size_t columns, const float* multiplier, ActivationGroup* out, std::size_t out_stride,
              FaultFlag& fault) noexcept {
    for_tokens(worker, placement, tokens, [&](std::size_t token) {
        if (!kernels.quantize(x.row(token), multiplier, columns / kGroupSize, out + token * out_stride)) {
            fault.store(true, std::memory_order_relaxed);
        }
        worker.traffic.activation_bytes += columns * sizeof(float) + columns / kGroupSize * sizeof(ActivationGroup);
    });
}

void normalize_quantize(Worker& worker, const KernelTable& kernels, Placement placement, FloatView x,
                        std::size_t tokens, std::size_t columns, const NormWeights& norm, const float* multiplier,
                        float* scratch, ActivationGroup* out, std::size_t out_stride, FaultFlag& fault) noexcept {
    for_tokens(worker, placement, tokens, [&](std::size_t token) {
        normalize_row(kernels, x.row(token), columns, norm, scratch);
        if (!kernels.quantize(scratch, multiplier, columns / kGroupSize, out + token * out_stride)) {
            fault.store(true, std::memory_order_relaxed);
        }
        worker.traffic.activation_bytes += columns * sizeof(float) + columns / kGroupSize * sizeof(ActivationGroup);
    });
}

void linear(Worker& worker, const KernelTable& kernels, const WeightView& weights, const LinearInput& input,
            const LinearEpilogue& epilogue, MutableFloatView out) noexcept {
    const std::size_t blocks = blocks_per_piece(weights, worker.count());
    const std::size_t pieces = (weights.row_blocks() + blocks - 1) / blocks;
    worker.share(pieces, [&](std::size_t piece) {
        const std::size_t begin = piece * blocks;
        const std::size_t end = begin + blocks < weights.row_blocks() ? begin + blocks : weights.row_blocks();
        const std::size_t row = begin * kRowsPerBlock;
        const std::size_t rows = (end * kRowsPerBlock < weights.rows ? end * kRowsPerBlock : weights.rows) - row;
        if (piece == 0) {
            const std::size_t tensors = epilogue.residual.values != nullptr ? 2 : 1;
            count_product(worker, weights, input, tensors * input.tokens * weights.rows * sizeof(float), true);
        }
        if (epilogue.residual.values == nullptr) {
            kernels.linear(weights, input, begin, end, out.values + row, out.row_stride);
            for (std::size_t token = 0; epilogue.bias != nullptr && token < input.tokens; ++token) {
                add_bias(out.row(token) + row, epilogue.bias + row, rows);
            }
            return;
        }
        // The residual may be the output itself, so the product goes through a buffer.
        constexpr std::size_t kRowsPerStep = 64;
        float sums[kTokensPerTile * kRowsPerStep];
        for (std::size_t token = 0; token < input.tokens; token += kTokensPerTile) {
            const std::size_t rest = input.tokens - token;
            const LinearInput tile = part_of(input, token, rest < kTokensPerTile ? rest : kTokensPerTile);
            for (std::size_t done = 0; done < rows; done += kRowsPerStep) {
                const std::size_t here = rows - done < kRowsPerStep ? rows - done : kRowsPerStep;
                const std::size_t first = begin + done / kRowsPerBlock;
                kernels.linear(weights, tile, first, first + (here + kRowsPerBlock - 1) / kRowsPerBlock, sums,
                               kRowsPerStep);
                for (std::size_t i = 0; i < tile.tokens; ++i) {
                    float* sum = sums + i * kRowsPerStep;
                    if (epilogue.bias != nullptr) {
                        add_bias(sum, epilogue.bias + row + done, here);
                    }
                    const float* residual = epilogue.residual.row(token + i) + row + done;
                    float* target = out.row(token + i) + row + done;
                    for (std::size_t r = 0; r < here; ++r) {
                        target[r] = sum[r] + residual[r];
                    }
                }
            }
        }
    });
}

void gated_linear(Worker& worker, const KernelTable& kernels, const WeightView& gate, const WeightView& up,
                  const LinearInput& input, MutableFloatView out) noexcept {
    share_groups(worker, gate, [&](std::size_t group) {
        if (group == 0) {
            count_product(worker, gate, input, input.tokens * gate.rows * sizeof(float), true);
            count_product(worker, up, input, 0, false);
        }
        const std::size_t row = group * kGroupSize;
        const std::size_t rows = gate.rows - row < kGroupSize ? gate.rows - row : kGroupSize;
        gated_group(kernels, gate, up, input, group, [&](std::size_t token, const float* values) {
            for (std::size_t r = 0; r < rows; ++r) {
                out.row(token)[row + r] = values[r];
            }
        });
    });
}

void gated_linear_quantize(Worker& worker, const KernelTable& kernels, const WeightView& gate, const WeightView& up,
                           const LinearInput& input, const float* multiplier, ActivationGroup* out,
                           std::size_t out_stride, FaultFlag& fault) noexcept {
    PERCEPTD_ASSERT(gate.rows % kGroupSize == 0 && gate.rows == up.rows);
    share_groups(worker, gate, [&](std::size_t group) {
        if (group == 0) {
            count_product(worker, gate, input, input.tokens * (gate.rows / kGroupSize) * sizeof(ActivationGroup), true);
            count_product(worker, up, input, 0, false);
        }
        const float* factors = multiplier != nullptr ? multiplier + group * kGroupSize : nullptr;
        gated_group(kernels, gate, up, input, group, [&](std::size_t token, const float* values) {
            if (!kernels.quantize(values, factors, 1, out + token * out_stride + group)) {
                fault.store(true, std::memory_order_relaxed);
            }
        });
    });
}

}  // namespace perceptd::engine

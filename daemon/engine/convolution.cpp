#include "engine/convolution.hpp"

#include <cstring>

namespace perceptd::engine {
namespace {

/// Copies the patch under output position (y, x) to `row`; outside the input it is zero.
void gather_patch(const ConvolutionShape& shape, const float* input, std::size_t y, std::size_t x,
                  float* row) noexcept {
    const std::size_t line = shape.kernel_width * shape.channels;
    std::memset(row, 0, shape.padded_patch_size() * sizeof(float));
    for (std::size_t ky = 0; ky < shape.kernel_height; ++ky) {
        const std::size_t in_y = y * shape.stride_height + ky;
        if (in_y < shape.padding_height || in_y >= shape.height + shape.padding_height) {
            continue;
        }
        for (std::size_t kx = 0; kx < shape.kernel_width; ++kx) {
            const std::size_t in_x = x * shape.stride_width + kx;
            if (in_x < shape.padding_width || in_x >= shape.width + shape.padding_width) {
                continue;
            }
            const std::size_t from =
                ((in_y - shape.padding_height) * shape.width + in_x - shape.padding_width) * shape.channels;
            std::memcpy(row + ky * line + kx * shape.channels, input + from, shape.channels * sizeof(float));
        }
    }
}

}  // namespace

void convolve(Worker& worker, const KernelTable& kernels, const ConvolutionShape& shape, const float* input,
              const WeightView& weights, const float* bias, MutableFloatView out, std::byte* scratch,
              FaultFlag& fault) noexcept {
    const std::size_t patch = shape.padded_patch_size();
    const std::size_t groups = patch / kGroupSize;
    const std::size_t positions = shape.out_height() * shape.out_width();
    auto* rows = reinterpret_cast<float*>(scratch);
    auto* codes = reinterpret_cast<ActivationGroup*>(scratch + kConvolutionTile * patch * sizeof(float));
    worker.share((positions + kConvolutionTile - 1) / kConvolutionTile, [&](std::size_t tile) {
        const std::size_t begin = tile * kConvolutionTile;
        const std::size_t count = positions - begin < kConvolutionTile ? positions - begin : kConvolutionTile;
        if (tile == 0) {
            worker.traffic.weight_bytes += weights.bytes();
            worker.traffic.activation_bytes +=
                (shape.height * shape.width * shape.channels + positions * weights.rows) * sizeof(float);
            worker.traffic.multiply_count += std::uint64_t{positions} * weights.rows * patch;
        }
        LinearInput product;
        product.tokens = count;
        product.floats = {rows, patch};
        product.codes = {codes, groups};
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t position = begin + i;
            gather_patch(shape, input, position / shape.out_width(), position % shape.out_width(), rows + i * patch);
            if (is_integer(weights.kind) && !kernels.quantize(rows + i * patch, nullptr, groups, codes + i * groups)) {
                fault.store(true, std::memory_order_relaxed);
            }
        }
        kernels.linear(weights, product, 0, weights.row_blocks(), out.row(begin), out.row_stride);
        for (std::size_t i = 0; bias != nullptr && i < count; ++i) {
            for (std::size_t r = 0; r < weights.rows; ++r) {
                out.row(begin + i)[r] += bias[r];
            }
        }
    });
}

}  // namespace perceptd::engine

// Convolutions of the sensor encoders as matrix products: patches of the input are laid out as rows of a bounded
// scratch (im2col) a few output positions at a time, then multiplied by float or quantized weights. Owns nothing.
#pragma once

#include <cstddef>

#include "engine/operations.hpp"

namespace perceptd::engine {

/// Input: height x width x channels (channels innermost); a 1-d convolution has height 1. Weights: rows = output
/// channels, columns = kernel_height * kernel_width * channels in that order, padded with zeros to a multiple of 32.
struct ConvolutionShape {
    std::size_t height = 1, width = 1, channels = 1;
    std::size_t kernel_height = 1, kernel_width = 1;
    std::size_t stride_height = 1, stride_width = 1;
    std::size_t padding_height = 0, padding_width = 0;

    [[nodiscard]] constexpr std::size_t out_height() const noexcept {
        return (height + 2 * padding_height - kernel_height) / stride_height + 1;
    }
    [[nodiscard]] constexpr std::size_t out_width() const noexcept {
        return (width + 2 * padding_width - kernel_width) / stride_width + 1;
    }
    [[nodiscard]] constexpr std::size_t patch_size() const noexcept { return kernel_height * kernel_width * channels; }
    [[nodiscard]] constexpr std::size_t padded_patch_size() const noexcept { return (patch_size() + 31) / 32 * 32; }
};

inline constexpr std::size_t kConvolutionTile = 16;

/// Scratch bytes that each worker needs.
constexpr std::size_t convolution_scratch_bytes(const ConvolutionShape& shape) noexcept {
    return kConvolutionTile * shape.padded_patch_size() * (sizeof(float) + 2);
}

/// out[(y * out_width + x)][channel] = weights * patch + bias. Work is shared by tiles of output positions. `scratch`
/// is this worker's own, aligned to 8 bytes.
void convolve(Worker& worker, const KernelTable& kernels, const ConvolutionShape& shape, const float* input,
              const WeightView& weights, const float* bias, MutableFloatView out, std::byte* scratch,
              FaultFlag& fault) noexcept;

}  // namespace perceptd::engine

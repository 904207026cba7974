// A decoder computed in double from the stored weights by the plain formulas: the yardstick for the engine's logits and
// the source of calibrations. Borrows the model. Shares no code with the engine: no quantized activation, no cache of
// keys and values in another format, no fused operation. Never fast.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/decoder_config.hpp"

namespace perceptd::model_tool {

/// Tokens x width, transposed: `values[channel * tokens + token]`.
struct Columns {
    std::size_t width = 0;
    std::size_t tokens = 0;
    std::vector<double> values;

    Columns(std::size_t channels, std::size_t count) : width(channels), tokens(count), values(channels * count) {}
    [[nodiscard]] double* channel(std::size_t c) noexcept { return values.data() + c * tokens; }
    [[nodiscard]] const double* channel(std::size_t c) const noexcept { return values.data() + c * tokens; }
};

/// Hears what a matrix is multiplied with, before the product.
using InputWatch = std::function<void(const model::WeightMatrix& matrix, const Columns& input)>;

/// Logits of every token of a sequence that begins with it: vocabulary x tokens. On all processors. Throws
/// Error(InvalidArgument) for a token id beyond the vocabulary.
[[nodiscard]] Columns reference_logits(const model::Decoder& decoder, std::span<const std::uint32_t> tokens,
                                       const InputWatch& watch = {});

}  // namespace perceptd::model_tool

// Per-channel smoothing: a channel whose activations are large spoils the scale of all that share it, so a part of its
// size is moved into the weights, where each channel is seen once. Owns factors per tensor. Never changes the function
// of a float model: what an earlier operation gives is divided by exactly what the matrix is multiplied with, and all
// factors are powers of two, so that not a bit of a product changes.
//
// Where a matrix's input comes from, and so who is divided: query, key, value and gate, up: the norm before them;
// the output matrix: the last norm, unless it is the embedding table too; down: the rows of up; the attention's
// output: the rows (and the bias) of value, one factor for all query heads of a KV head.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "calibration.hpp"
#include "model/decoder_config.hpp"

namespace perceptd::model_tool {

/// Multiplies element (row, column) of a tensor by rows[row] * columns[column]; empty: by 1. Vectors have columns.
struct TensorFactors {
    std::vector<float> rows;
    std::vector<float> columns;
};

class Smoothing {
public:
    Smoothing() = default;
    /// factor = largest activation^strength / largest weight^(1 - strength) of each channel, rounded to a power of two
    /// within 2^-12 .. 2^12. Throws Error(InvalidArgument) for a strength outside 0..1 and a calibration that does not
    /// speak of a matrix of the decoder.
    Smoothing(const model::Decoder& decoder, const Calibration& calibration, double strength);

    /// Null: the tensor stays as it is.
    [[nodiscard]] const TensorFactors* of(std::string_view tensor) const noexcept;

private:
    std::map<std::string, TensorFactors, std::less<>> factors_;
};

}  // namespace perceptd::model_tool

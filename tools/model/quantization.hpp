// Stores a model in another encoding. Owns nothing. Never changes the vocabulary, nor norms and biases but by
// smoothing; never reads weights
// twice removed: the source should be F16, BF16 or F32.
#pragma once

#include <optional>
#include <string>

#include "model/weights.hpp"

namespace perceptd::model_tool {

struct QuantizeOptions {
    model::Encoding encoding = model::Encoding::Q8_0;
    /// A file that calibrate() wrote; empty: none. INT4 minimises the error weighted with it.
    std::string calibration_path;
    /// Strength of per-channel smoothing (smoothing.hpp), 0 to 1; needs a calibration with the largest activations.
    std::optional<double> smoothing;
};

/// Writes `input` to `output` with every matrix as `encoding`; matrices whose rows do not fit its blocks keep theirs,
/// and are named on stderr. Throws std::system_error or Error.
void quantize(const std::string& input, const std::string& output, const QuantizeOptions& options);

}  // namespace perceptd::model_tool

// Stores a model in another encoding. Owns nothing. Never changes norms, biases and vocabulary; never reads weights
// twice removed: the source should be F16, BF16 or F32.
#pragma once

#include <string>

#include "model/weights.hpp"

namespace perceptd::model_tool {

/// Writes `input` to `output` with every matrix as `encoding`; matrices whose rows do not fit its blocks keep theirs,
/// and are named on stderr. `calibration` (may be empty) is a GGUF file with an F32 vector "<tensor>.importance" of
/// mean squared activations per column for any tensor; INT4 minimises the error weighted with it. Throws
/// std::system_error or Error.
void quantize(const std::string& input, const std::string& output, model::Encoding encoding,
              const std::string& calibration);

}  // namespace perceptd::model_tool

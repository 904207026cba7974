// What the inputs of each matrix look like, channel by channel: a GGUF file of F32 vectors "<tensor>.importance" (mean
// squared activation) and "<tensor>.largest" (largest magnitude). Owns the numbers. Never trusts a file: lengths and
// values are checked.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "token_sample.hpp"

namespace perceptd::model_tool {

class Calibration {
public:
    Calibration() = default;
    /// Throws Error(InvalidArgument) naming the tensor, std::system_error when the file cannot be opened.
    explicit Calibration(const std::string& path);

    /// One value per column, or empty when the file does not speak of the tensor. Throws Error(InvalidArgument) for
    /// another number of columns.
    [[nodiscard]] std::span<const float> importance(std::string_view tensor, std::uint64_t columns) const;
    [[nodiscard]] std::span<const float> largest(std::string_view tensor, std::uint64_t columns) const;

private:
    using Vectors = std::map<std::string, std::vector<float>, std::less<>>;
    Vectors importance_;
    Vectors largest_;
};

/// Runs the model in `input` exactly over a sample and writes what its matrices were multiplied with. Throws Error or
/// std::system_error.
void calibrate(const std::string& input, const SampleOptions& sample, const std::string& output);

}  // namespace perceptd::model_tool

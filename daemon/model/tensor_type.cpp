// Names for all numbers that GGUF has defined, so that an error can say which type a file uses.
#include "model/tensor_type.hpp"

#include <array>

namespace perceptd::model {
namespace {

// Indexed by the file's number; empty: never defined, or withdrawn.
constexpr std::array<std::string_view, 40> kNames{
    "F32",    "F16",   "Q4_0",  "Q4_1",   "",      "",      "Q5_0",    "Q5_1",   "Q8_0",    "Q8_1",
    "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",   "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S",
    "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",   "I32",     "I64",    "F64",     "IQ1_M",
    "BF16",   "",      "",      "",       "TQ1_0", "TQ2_0", "",        "",       "",        "MXFP4"};

}  // namespace

std::optional<TensorType> tensor_type_of(std::uint32_t number) noexcept {
    switch (static_cast<TensorType>(number)) {
        case TensorType::F32:
        case TensorType::F16:
        case TensorType::Q4_0:
        case TensorType::Q4_1:
        case TensorType::Q8_0:
        case TensorType::Q4_K:
        case TensorType::Q6_K:
        case TensorType::I8:
        case TensorType::Bf16: return static_cast<TensorType>(number);
    }
    return std::nullopt;
}

std::string tensor_type_name(std::uint32_t number) {
    if (number < kNames.size() && !kNames[number].empty()) {
        return std::string(kNames[number]);
    }
    return "type " + std::to_string(number);
}

}  // namespace perceptd::model

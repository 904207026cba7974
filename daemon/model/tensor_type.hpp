// The tensor types of GGUF that perceptd reads, and the size of their blocks. Owns nothing.
// Never guesses: a type that is not listed is refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace perceptd::model {

/// The numbers are the file's.
enum class TensorType : std::uint32_t {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q8_0 = 8,
    Q4_K = 12,
    Q6_K = 14,
    I8 = 24,  ///< raw bytes: perceptd's own encodings (weights.hpp)
    Bf16 = 30,
};

/// The type behind a file's number, if it is one of the above.
[[nodiscard]] std::optional<TensorType> tensor_type_of(std::uint32_t number) noexcept;

/// What the file's number is called, for errors: "Q5_K", or "type 99" for one that GGUF does not define.
[[nodiscard]] std::string tensor_type_name(std::uint32_t number);
[[nodiscard]] inline std::string tensor_type_name(TensorType type) {
    return tensor_type_name(static_cast<std::uint32_t>(type));
}

/// Weights and bytes of one block. Real-time safe.
[[nodiscard]] constexpr std::uint32_t block_weights_of(TensorType type) noexcept {
    switch (type) {
        case TensorType::Q4_0:
        case TensorType::Q4_1:
        case TensorType::Q8_0: return 32;
        case TensorType::Q4_K:
        case TensorType::Q6_K: return 256;
        case TensorType::F32:
        case TensorType::F16:
        case TensorType::I8:
        case TensorType::Bf16: break;
    }
    return 1;
}

[[nodiscard]] constexpr std::uint32_t block_bytes_of(TensorType type) noexcept {
    switch (type) {
        case TensorType::F32: return 4;
        case TensorType::F16:
        case TensorType::Bf16: return 2;
        case TensorType::Q4_0: return 18;
        case TensorType::Q4_1: return 20;
        case TensorType::Q8_0: return 34;
        case TensorType::Q4_K: return 144;
        case TensorType::Q6_K: return 210;
        case TensorType::I8: break;
    }
    return 1;
}

}  // namespace perceptd::model

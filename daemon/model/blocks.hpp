// The block formats of GGUF as scalar code: what a stored block means, and how one is made. The engine's kernels are
// tested against this. Owns nothing. Never vectorised by hand, never approximate: decoding is the format's definition
// in float arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/tensor_type.hpp"

namespace perceptd::model {

/// IEEE half and bfloat16: round to nearest even; NaN stays a quiet NaN, overflow becomes infinity. Real-time safe.
[[nodiscard]] std::uint16_t encode_f16(float value) noexcept;
[[nodiscard]] float decode_f16(std::uint16_t bits) noexcept;
[[nodiscard]] std::uint16_t encode_bf16(float value) noexcept;
[[nodiscard]] float decode_bf16(std::uint16_t bits) noexcept;

/// Little endian, whatever the machine is. The span holds at least 2 (4) bytes.
[[nodiscard]] std::uint16_t load_u16(std::span<const std::byte> from) noexcept;
void store_u16(std::span<std::byte> to, std::uint16_t value) noexcept;
[[nodiscard]] std::uint32_t load_u32(std::span<const std::byte> from) noexcept;
void store_u32(std::span<std::byte> to, std::uint32_t value) noexcept;

/// One block of `type`: block_bytes_of(type) bytes to or from block_weights_of(type) weights. Not for I8. Real-time
/// safe.
void decode_block(TensorType type, std::span<const std::byte> block, std::span<float> weights) noexcept;

/// Whether encode_block() can make blocks of `type`: all but Q4_K and I8.
[[nodiscard]] bool can_encode(TensorType type) noexcept;

/// Q8_0, Q4_0 and Q4_1 choose as the format's reference does (scale from the extreme, no search); Q6_K takes its 16
/// scales from the extremes. Weights are finite and, but for F32 and BF16, within +-65504. Real-time safe.
void encode_block(TensorType type, std::span<const float> weights, std::span<std::byte> block) noexcept;

}  // namespace perceptd::model

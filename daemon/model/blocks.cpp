// Block by block, in the byte layouts of ggml-common.h: fp16 scales first for Q4 and Q8, last for Q6_K.
#include "model/blocks.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/contract.hpp"

namespace perceptd::model {
namespace {

using Bytes = std::span<const std::byte>;

unsigned at(Bytes bytes, std::size_t index) noexcept {
    return std::to_integer<unsigned>(bytes[index]);
}

float half_at(Bytes bytes, std::size_t offset) noexcept {
    return decode_f16(load_u16(bytes.subspan(offset)));
}

float signed_extreme(std::span<const float> weights) noexcept {
    float extreme = 0;
    for (const float weight : weights) {
        extreme = std::abs(weight) > std::abs(extreme) ? weight : extreme;
    }
    return extreme;
}

/// 1 / scale, or 0 where that is no number: such a scale is stored as 0 anyway.
float inverse_of(float scale) noexcept {
    const float inverse = 1.0F / scale;
    return std::isfinite(inverse) ? inverse : 0.0F;
}

/// The 32 nibbles of Q4_0 and Q4_1: byte i holds weight i (low) and i + 16 (high).
template <typename Code>
void put_nibbles(std::span<std::byte> to, std::span<const float> weights, Code code) noexcept {
    for (std::size_t i = 0; i < 16; ++i) {
        to[i] = static_cast<std::byte>(code(weights[i]) | (code(weights[i + 16]) << 4));
    }
}

void decode_q8_0(Bytes block, std::span<float> weights) noexcept {
    const float scale = half_at(block, 0);
    for (std::size_t i = 0; i < 32; ++i) {
        weights[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
    }
}

void encode_q8_0(std::span<const float> weights, std::span<std::byte> block) noexcept {
    const float scale = std::abs(signed_extreme(weights)) / 127.0F;
    const float inverse = inverse_of(scale);
    store_u16(block, encode_f16(scale));
    for (std::size_t i = 0; i < 32; ++i) {
        block[2 + i] =
            static_cast<std::byte>(static_cast<int>(std::clamp(std::round(weights[i] * inverse), -127.0F, 127.0F)));
    }
}

void decode_q4_0(Bytes block, std::span<float> weights) noexcept {
    const float scale = half_at(block, 0);
    for (std::size_t i = 0; i < 16; ++i) {
        weights[i] = scale * static_cast<float>(static_cast<int>(at(block, 2 + i) & 0xfU) - 8);
        weights[i + 16] = scale * static_cast<float>(static_cast<int>(at(block, 2 + i) >> 4) - 8);
    }
}

void encode_q4_0(std::span<const float> weights, std::span<std::byte> block) noexcept {
    const float scale = signed_extreme(weights) / -8.0F;
    const float inverse = inverse_of(scale);
    store_u16(block, encode_f16(scale));
    put_nibbles(block.subspan(2), weights,
                [&](float weight) { return static_cast<unsigned>(std::min(15.0F, weight * inverse + 8.5F)); });
}

void decode_q4_1(Bytes block, std::span<float> weights) noexcept {
    const float scale = half_at(block, 0);
    const float minimum = half_at(block, 2);
    for (std::size_t i = 0; i < 16; ++i) {
        weights[i] = scale * static_cast<float>(at(block, 4 + i) & 0xfU) + minimum;
        weights[i + 16] = scale * static_cast<float>(at(block, 4 + i) >> 4) + minimum;
    }
}

void encode_q4_1(std::span<const float> weights, std::span<std::byte> block) noexcept {
    const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
    const float minimum = *low;
    const float scale = (*high - minimum) / 15.0F;
    const float inverse = inverse_of(scale);
    store_u16(block, encode_f16(scale));
    store_u16(block.subspan(2), encode_f16(minimum));
    put_nibbles(block.subspan(4), weights, [&](float weight) {
        return static_cast<unsigned>(std::min(15.0F, (weight - minimum) * inverse + 0.5F));
    });
}

struct ScaleAndMin {
    float scale;
    float minimum;
};

/// Q4_K packs eight 6-bit scales and eight 6-bit minima into 12 bytes.
ScaleAndMin q4_k_pair(Bytes packed, std::size_t j) noexcept {
    if (j < 4) {
        return {static_cast<float>(at(packed, j) & 63U), static_cast<float>(at(packed, j + 4) & 63U)};
    }
    const unsigned scale = (at(packed, j + 4) & 0xfU) | ((at(packed, j - 4) >> 6) << 4);
    const unsigned minimum = (at(packed, j + 4) >> 4) | ((at(packed, j) >> 6) << 4);
    return {static_cast<float>(scale), static_cast<float>(minimum)};
}

void decode_q4_k(Bytes block, std::span<float> weights) noexcept {
    const float scale = half_at(block, 0);
    const float minimum = half_at(block, 2);
    for (std::size_t j = 0; j < 8; ++j) {
        const ScaleAndMin pair = q4_k_pair(block.subspan(4, 12), j);
        const float group_scale = scale * pair.scale;
        const float group_minimum = minimum * pair.minimum;
        for (std::size_t i = 0; i < 32; ++i) {
            const unsigned byte = at(block, 16 + 32 * (j / 2) + i);
            const unsigned code = j % 2 == 0 ? byte & 0xfU : byte >> 4;
            weights[32 * j + i] = group_scale * static_cast<float>(code) - group_minimum;
        }
    }
}

// Q6_K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, fp16 d. Weight w of a half (128 weights)
// lies in quarter w / 32; quarters 0 and 1 use the low nibbles of 64 bytes, 2 and 3 the high ones.
constexpr std::size_t kQ6HighBits = 128;
constexpr std::size_t kQ6Scales = 192;
constexpr std::size_t kQ6Scale = 208;

struct Q6Place {
    std::size_t low_byte;
    unsigned low_shift;
    std::size_t high_byte;
    unsigned high_shift;
};

Q6Place q6_place(std::size_t weight) noexcept {
    const std::size_t half = weight / 128;
    const std::size_t within = weight % 128;
    const std::size_t quarter = within / 32;
    return {64 * half + within % 64, quarter < 2 ? 0U : 4U, kQ6HighBits + 32 * half + within % 32,
            static_cast<unsigned>(2 * quarter)};
}

void decode_q6_k(Bytes block, std::span<float> weights) noexcept {
    const float scale = half_at(block, kQ6Scale);
    for (std::size_t i = 0; i < 256; ++i) {
        const Q6Place place = q6_place(i);
        const unsigned low = (at(block, place.low_byte) >> place.low_shift) & 0xfU;
        const unsigned high = (at(block, place.high_byte) >> place.high_shift) & 3U;
        const int code = static_cast<int>(low | (high << 4)) - 32;
        const auto group_scale = static_cast<float>(static_cast<std::int8_t>(block[kQ6Scales + i / 16]));
        weights[i] = scale * group_scale * static_cast<float>(code);
    }
}

void encode_q6_k(std::span<const float> weights, std::span<std::byte> block) noexcept {
    std::array<float, 16> wanted{};
    for (std::size_t j = 0; j < wanted.size(); ++j) {
        wanted[j] = signed_extreme(weights.subspan(16 * j, 16)) / -32.0F;
    }
    const std::uint16_t stored = encode_f16(signed_extreme(wanted) / -128.0F);
    const float scale = decode_f16(stored);
    std::fill(block.begin(), block.end(), std::byte{0});
    store_u16(block.subspan(kQ6Scale), stored);
    for (std::size_t i = 0; i < 256; ++i) {
        const float ratio = scale != 0 ? wanted[i / 16] / scale : 0.0F;
        const auto group_scale = static_cast<int>(std::clamp(std::nearbyint(ratio), -128.0F, 127.0F));
        block[kQ6Scales + i / 16] = static_cast<std::byte>(group_scale);
        const float step = scale * static_cast<float>(group_scale);
        const float level = step != 0 ? std::nearbyint(weights[i] / step) : 0.0F;
        const auto code = static_cast<unsigned>(static_cast<int>(std::clamp(level, -32.0F, 31.0F)) + 32);
        const Q6Place place = q6_place(i);
        block[place.low_byte] |= static_cast<std::byte>((code & 0xfU) << place.low_shift);
        block[place.high_byte] |= static_cast<std::byte>((code >> 4) << place.high_shift);
    }
}

}  // namespace

std::uint16_t load_u16(std::span<const std::byte> from) noexcept {
    return static_cast<std::uint16_t>(at(from, 0) | (at(from, 1) << 8));
}

void store_u16(std::span<std::byte> to, std::uint16_t value) noexcept {
    to[0] = static_cast<std::byte>(value & 0xffU);
    to[1] = static_cast<std::byte>(value >> 8);
}

std::uint32_t load_u32(std::span<const std::byte> from) noexcept {
    return load_u16(from) | (static_cast<std::uint32_t>(load_u16(from.subspan(2))) << 16);
}

void store_u32(std::span<std::byte> to, std::uint32_t value) noexcept {
    store_u16(to, static_cast<std::uint16_t>(value & 0xffffU));
    store_u16(to.subspan(2), static_cast<std::uint16_t>(value >> 16));
}

std::uint16_t encode_f16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
        return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x1ffU));
    }
    if (magnitude >= 0x477ff000U) {  // 65520 and more round beyond the largest half
        return static_cast<std::uint16_t>(sign | 0x7c00U);
    }
    if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 lets the float unit round at 2^-24
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
    }
    const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

float decode_f16(std::uint16_t bits) noexcept {
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    const std::uint32_t field = (bits >> 10) & 0x1fU;
    const std::uint32_t fraction = bits & 0x3ffU;
    if (field == 0) {
        const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    const std::uint32_t exponent = field == 31 ? 255 : field + 112;
    return std::bit_cast<float>(sign | (exponent << 23) | (fraction << 13));
}

std::uint16_t encode_bf16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
    }
    return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float decode_bf16(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

void decode_block(TensorType type, std::span<const std::byte> block, std::span<float> weights) noexcept {
    switch (type) {
        case TensorType::F32: weights[0] = std::bit_cast<float>(load_u32(block)); return;
        case TensorType::F16: weights[0] = decode_f16(load_u16(block)); return;
        case TensorType::Bf16: weights[0] = decode_bf16(load_u16(block)); return;
        case TensorType::Q8_0: return decode_q8_0(block, weights);
        case TensorType::Q4_0: return decode_q4_0(block, weights);
        case TensorType::Q4_1: return decode_q4_1(block, weights);
        case TensorType::Q4_K: return decode_q4_k(block, weights);
        case TensorType::Q6_K: return decode_q6_k(block, weights);
        case TensorType::I8: break;
    }
    PERCEPTD_ASSERT(false && "I8 has no blocks");
}

bool can_encode(TensorType type) noexcept {
    return type != TensorType::Q4_K && type != TensorType::I8;
}

void encode_block(TensorType type, std::span<const float> weights, std::span<std::byte> block) noexcept {
    switch (type) {
        case TensorType::F32: return store_u32(block, std::bit_cast<std::uint32_t>(weights[0]));
        case TensorType::F16: return store_u16(block, encode_f16(weights[0]));
        case TensorType::Bf16: return store_u16(block, encode_bf16(weights[0]));
        case TensorType::Q8_0: return encode_q8_0(weights, block);
        case TensorType::Q4_0: return encode_q4_0(weights, block);
        case TensorType::Q4_1: return encode_q4_1(weights, block);
        case TensorType::Q6_K: return encode_q6_k(weights, block);
        case TensorType::Q4_K:
        case TensorType::I8: break;
    }
    PERCEPTD_ASSERT(can_encode(type));
}

}  // namespace perceptd::model

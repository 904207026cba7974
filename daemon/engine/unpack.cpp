// The reading side of pack.hpp: what value the packed bytes mean.
#include <cstring>

#include "engine/pack.hpp"
#include "model/blocks.hpp"
#include "model/fp8.hpp"

namespace perceptd::engine {
namespace {

std::uint8_t byte_at(const std::byte* p, std::size_t i) noexcept {
    return std::to_integer<std::uint8_t>(p[i]);
}

double f16_at(const std::byte* p, std::size_t i) noexcept {
    std::uint16_t code = 0;
    std::memcpy(&code, p + 2 * i, 2);
    return static_cast<double>(model::decode_f16(code));
}

double float_element(WeightKind kind, const std::byte* p) noexcept {
    std::uint16_t word = 0;
    switch (kind) {
        case WeightKind::F32: {
            float value = 0.0F;
            std::memcpy(&value, p, 4);
            return static_cast<double>(value);
        }
        case WeightKind::F16: return f16_at(p, 0);
        case WeightKind::Bf16: std::memcpy(&word, p, 2); return static_cast<double>(model::decode_bf16(word));
        case WeightKind::Fp8E4m3: return static_cast<double>(model::decode_fp8(byte_at(p, 0), model::Fp8Format::E4m3));
        default: return static_cast<double>(model::decode_fp8(byte_at(p, 0), model::Fp8Format::E5m2));
    }
}

/// The code at `place` (0..31) of row `r` of a group.
int code_at(WeightKind kind, const std::byte* codes, std::size_t r, std::size_t place) noexcept {
    const std::size_t quad = place / 4;
    const std::size_t b = r * 4 + place % 4;
    if (kind == WeightKind::Q8_0) {
        return static_cast<std::int8_t>(byte_at(codes, 32 * quad + b));
    }
    const std::uint8_t both = byte_at(codes, 32 * (quad % 4) + b);
    int code = quad < 4 ? both & 0x0F : both >> 4;
    if (kind == WeightKind::Q6_K) {
        code |= (byte_at(codes, 128 + 32 * (quad / 4) + b) >> (2 * (quad % 4)) & 3) << 4;
    }
    return code;
}

}  // namespace

double packed_value(const WeightView& weights, std::size_t row, std::size_t column) noexcept {
    const ChunkShape shape = chunk_shape_of(weights.kind);
    const std::size_t r = row % kRowsPerBlock;
    const std::byte* block = weights.data + row / kRowsPerBlock * weights.row_block_bytes();
    if (!is_integer(weights.kind)) {
        const std::size_t size = shape.group_bytes / kGroupSize / kRowsPerBlock;
        const double value = float_element(weights.kind, block + (column * kRowsPerBlock + r) * size);
        const bool scaled = weights.kind == WeightKind::Fp8E4m3 || weights.kind == WeightKind::Fp8E5m2;
        return scaled ? value * static_cast<double>(weights.row_scales[row]) : value;
    }
    const std::size_t g = column / kGroupSize;
    const std::size_t j = g % shape.groups;
    const std::byte* header = block + g / shape.groups * shape.bytes();
    const int code = code_at(weights.kind, header + shape.header_bytes + j * shape.group_bytes, r,
                             place_in_group(column % kGroupSize));
    switch (weights.kind) {
        case WeightKind::Q4_0: return f16_at(header, 8 * j + r) * (code - 8);
        case WeightKind::Q4_1: return f16_at(header, 8 * j + r) * code + f16_at(header + 64, 8 * j + r);
        case WeightKind::Q4_K:
            return f16_at(header, r) * byte_at(header, 32 + 8 * j + r) * code -
                   f16_at(header + 16, r) * byte_at(header, 96 + 8 * j + r);
        case WeightKind::Q6_K: {
            const std::size_t half = column % kGroupSize / 16;
            const auto scale = static_cast<std::int8_t>(byte_at(header, 32 + 16 * j + 8 * half + r));
            return f16_at(header, r) * scale * (code - 32);
        }
        case WeightKind::Int4G32: return f16_at(header, 8 * j + r) * (code - byte_at(header, 64 + 8 * j + r));
        case WeightKind::Int4G128: return f16_at(header, r) * (code - byte_at(header, 16 + r));
        default: return f16_at(header, 8 * j + r) * code;
    }
}

void unpack_row(const WeightView& weights, std::size_t row, float* out) noexcept {
    for (std::size_t column = 0; column < weights.columns; ++column) {
        out[column] = static_cast<float>(packed_value(weights, row, column));
    }
}

}  // namespace perceptd::engine

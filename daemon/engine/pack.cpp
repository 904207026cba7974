#include "engine/pack.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "model/blocks.hpp"
#include "model/int4.hpp"

namespace perceptd::engine {
namespace {

std::uint8_t byte_at(const std::byte* p, std::size_t i) noexcept {
    return std::to_integer<std::uint8_t>(p[i]);
}

std::uint16_t word_at(const std::byte* p) noexcept {
    std::uint16_t word = 0;
    std::memcpy(&word, p, sizeof(word));
    return word;
}

bool is_finite_f16(std::uint16_t code) noexcept {
    return (code & 0x7C00U) != 0x7C00U;
}

/// Byte offsets of a source block's parts.
struct SourceShape {
    std::size_t elements;
    std::size_t bytes;
};

constexpr SourceShape source_shape_of(WeightKind kind) noexcept {
    switch (kind) {
        case WeightKind::F32: return {1, 4};
        case WeightKind::F16:
        case WeightKind::Bf16: return {1, 2};
        case WeightKind::Fp8E4m3:
        case WeightKind::Fp8E5m2: return {1, 1};
        case WeightKind::Q4_0: return {32, 18};
        case WeightKind::Q4_1: return {32, 20};
        case WeightKind::Q4_K: return {256, 144};
        case WeightKind::Q6_K: return {256, 210};
        case WeightKind::Q8_0: return {32, 34};
        case WeightKind::Int4G32: return {32, 0};  // three planes, see int4.hpp of the model stage
        case WeightKind::Int4G128: return {128, 0};
    }
    return {1, 0};
}

/// Codes of one group of 32 in k order.
struct GroupCodes {
    std::uint8_t code[kGroupSize];
};

void split_nibbles(const std::byte* bytes, GroupCodes& out) noexcept {
    for (std::size_t i = 0; i < 16; ++i) {
        out.code[i] = byte_at(bytes, i) & 0x0F;
        out.code[i + 16] = byte_at(bytes, i) >> 4U;
    }
}

void read_pairs(const std::byte* bytes, GroupCodes& out) noexcept {
    for (std::size_t i = 0; i < 16; ++i) {
        out.code[2 * i] = byte_at(bytes, i) & 0x0F;
        out.code[2 * i + 1] = byte_at(bytes, i) >> 4U;
    }
}

void read_q4k(const std::byte* block, std::size_t part, GroupCodes& out) noexcept {
    const std::byte* codes = block + 16 + part / 2 * 32;
    for (std::size_t i = 0; i < kGroupSize; ++i) {
        out.code[i] = part % 2 == 0 ? byte_at(codes, i) & 0x0F : byte_at(codes, i) >> 4U;
    }
}

/// 6-bit scale and minimum of part 0..7 of a Q4_K block, out of its 12 bytes.
void read_q4k_scale(const std::byte* block, std::size_t part, std::uint8_t& scale, std::uint8_t& minimum) noexcept {
    const std::byte* s = block + 4;
    if (part < 4) {
        scale = byte_at(s, part) & 63U;
        minimum = byte_at(s, part + 4) & 63U;
    } else {
        scale = static_cast<std::uint8_t>((byte_at(s, part + 4) & 0x0FU) | (byte_at(s, part - 4) >> 6U << 4U));
        minimum = static_cast<std::uint8_t>((byte_at(s, part + 4) >> 4U) | (byte_at(s, part) >> 6U << 4U));
    }
}

void read_q6k(const std::byte* block, std::size_t part, GroupCodes& out) noexcept {
    const std::size_t quarter = part % 4;
    const std::byte* low = block + part / 4 * 64 + quarter % 2 * 32;
    const std::byte* high = block + 128 + part / 4 * 32;
    for (std::size_t i = 0; i < kGroupSize; ++i) {
        const unsigned nibble = quarter < 2 ? byte_at(low, i) & 0x0FU : byte_at(low, i) >> 4U;
        const unsigned upper = (byte_at(high, i) >> (2 * quarter)) & 3U;
        out.code[i] = static_cast<std::uint8_t>(nibble | (upper << 4U));
    }
}

/// The codes of group `g` of a source row.
void read_codes(WeightKind kind, const std::byte* row, std::size_t g, GroupCodes& out) noexcept {
    const SourceShape shape = source_shape_of(kind);
    const std::size_t per_block = shape.elements / kGroupSize;
    const std::byte* block = row + g / per_block * shape.bytes;
    const std::size_t part = g % per_block;
    switch (kind) {
        case WeightKind::Q4_0: return split_nibbles(block + 2, out);
        case WeightKind::Q4_1: return split_nibbles(block + 4, out);
        case WeightKind::Q4_K: return read_q4k(block, part, out);
        case WeightKind::Q6_K: return read_q6k(block, part, out);
        case WeightKind::Q8_0: std::memcpy(out.code, block + 2, kGroupSize); return;
        default: return read_pairs(row + kGroupSize / 2 * g, out);
    }
}

/// Writes scales of group `g` of one row into its chunk's header; null or what is wrong.
const char* pack_scales(WeightKind kind, const std::byte* source, std::size_t columns, std::size_t g, std::size_t row,
                        std::byte* header) {
    const SourceShape shape = source_shape_of(kind);
    const std::size_t per_block = shape.elements / kGroupSize;
    const std::byte* block = source + g / per_block * shape.bytes;
    const std::size_t part = g % per_block;
    const std::size_t j = g % chunk_shape_of(kind).groups;
    const auto put_f16 = [&](std::size_t offset, const std::byte* code) -> const char* {
        std::memcpy(header + offset + 2 * row, code, 2);
        return is_finite_f16(word_at(code)) ? nullptr : "a scale is NaN or infinite";
    };
    switch (kind) {
        case WeightKind::Q4_1: {
            const char* fault = put_f16(16 * j, block);
            return fault != nullptr ? fault : put_f16(64 + 16 * j, block + 2);
        }
        case WeightKind::Q4_K: {
            std::uint8_t scale = 0;
            std::uint8_t minimum = 0;
            read_q4k_scale(block, part, scale, minimum);
            header[32 + 8 * j + row] = std::byte{scale};
            header[96 + 8 * j + row] = std::byte{minimum};
            const char* fault = put_f16(0, block);
            return fault != nullptr ? fault : put_f16(16, block + 2);
        }
        case WeightKind::Q6_K:
            header[32 + 16 * j + row] = block[192 + 2 * part];
            header[40 + 16 * j + row] = block[193 + 2 * part];
            return put_f16(0, block + 208);
        case WeightKind::Int4G32:
        case WeightKind::Int4G128: {
            const model::Int4Group group =
                model::int4_group_of({source, source_row_bytes(kind, columns)}, columns, shape.elements, g / per_block);
            const bool per_group = kind == WeightKind::Int4G32;
            header[(per_group ? 64 + 8 * j : 16) + row] = std::byte{group.zero};
            const std::uint16_t scale = model::encode_f16(group.scale);
            return put_f16(per_group ? 16 * j : 0, reinterpret_cast<const std::byte*>(&scale));
        }
        default: return put_f16(16 * j, block);
    }
}

/// Codes of 8 rows in the order of the quads: [quad][row][place].
struct QuadCodes {
    std::uint8_t code[8][kRowsPerBlock][4];
};

void store_codes(WeightKind kind, const QuadCodes& quads, std::byte* out) noexcept {
    const auto* flat = &quads.code[0][0][0];
    if (kind == WeightKind::Q8_0) {
        std::memcpy(out, flat, 256);
        return;
    }
    for (std::size_t i = 0; i < 128; ++i) {
        out[i] = static_cast<std::byte>((flat[i] & 0x0FU) | ((flat[i + 128] & 0x0FU) << 4U));
    }
    if (kind == WeightKind::Q6_K) {
        for (std::size_t i = 0; i < 64; ++i) {
            const std::uint8_t* first = flat + i / 32 * 128 + i % 32;
            out[128 + i] = static_cast<std::byte>((first[0] >> 4U) | (first[32] >> 4U << 2U) | (first[64] >> 4U << 4U) |
                                                  (first[96] >> 4U << 6U));
        }
    }
}

/// How many bytes of scales precede the 32 codes of a source block that pack_eight_rows() knows; 0: another kind.
constexpr std::size_t plain_codes_offset(WeightKind kind) noexcept {
    return kind == WeightKind::Q4_1 ? 4 : kind == WeightKind::Q4_0 || kind == WeightKind::Q8_0 ? 2 : 0;
}

template <typename Word>
Word load_as(const std::byte* p) noexcept {
    static_assert(std::endian::native == std::endian::little, "codes are moved as little-endian words");
    Word word{};
    std::memcpy(&word, p, sizeof(word));
    return word;
}

/// One row of one group of Q4_0 or Q4_1: the nibbles of eight bytes at once, quad j and j + 4 in one byte.
void put_nibbles(const std::byte* codes, std::byte* out) noexcept {
    constexpr std::uint64_t kLow = 0x0F0F0F0F0F0F0F0FU;
    const auto first = load_as<std::uint64_t>(codes);
    const auto second = load_as<std::uint64_t>(codes + 8);
    std::uint64_t low = (first & kLow) | ((second & kLow) << 4U);
    std::uint64_t high = ((first >> 4U) & kLow) | (second & ~kLow);
    for (std::size_t j = 0; j < 4; ++j, low >>= 16U, high >>= 16U) {
        const auto quad = static_cast<std::uint32_t>((low & 0xFFFFU) | ((high & 0xFFFFU) << 16U));
        std::memcpy(out + 32 * j, &quad, sizeof(quad));
    }
}

void put_bytes(const std::byte* codes, std::byte* out) noexcept {
    for (std::size_t j = 0; j < 8; ++j) {
        std::memcpy(out + 32 * j, codes + 2 * j, 2);
        std::memcpy(out + 32 * j + 2, codes + 16 + 2 * j, 2);
    }
}

/// Eight existing rows of a kind with plain codes: several times as fast as code by code, which loading shows.
PackFault pack_eight_rows(const WeightView& shape, const std::byte* source, std::size_t block, std::byte* out) {
    const ChunkShape chunk = chunk_shape_of(shape.kind);
    const SourceShape from = source_shape_of(shape.kind);
    const std::size_t row_bytes = source_row_bytes(shape.kind, shape.columns);
    for (std::size_t r = 0; r < kRowsPerBlock; ++r) {
        const std::size_t row = block * kRowsPerBlock + r;
        const std::byte* group = source + row * row_bytes;
        for (std::size_t g = 0; g < shape.groups(); ++g, group += from.bytes) {
            std::byte* header = out + g / chunk.groups * chunk.bytes();
            const std::size_t j = g % chunk.groups;
            std::byte* codes = header + chunk.header_bytes + j * chunk.group_bytes + 4 * r;
            bool finite = is_finite_f16(word_at(group));
            std::memcpy(header + 16 * j + 2 * r, group, 2);
            if (shape.kind == WeightKind::Q4_1) {
                finite = finite && is_finite_f16(word_at(group + 2));
                std::memcpy(header + 64 + 16 * j + 2 * r, group + 2, 2);
            }
            if (!finite) {
                return {row, "a scale is NaN or infinite"};
            }
            if (shape.kind == WeightKind::Q8_0) {
                put_bytes(group + 2, codes);
            } else {
                put_nibbles(group + plain_codes_offset(shape.kind), codes);
            }
        }
    }
    return {};
}

PackFault pack_integer_block(const WeightView& shape, const std::byte* source, std::size_t block, std::byte* out) {
    if (plain_codes_offset(shape.kind) != 0 && (block + 1) * kRowsPerBlock <= shape.rows) {
        return pack_eight_rows(shape, source, block, out);
    }
    const ChunkShape chunk = chunk_shape_of(shape.kind);
    const std::size_t row_bytes = source_row_bytes(shape.kind, shape.columns);
    for (std::size_t g = 0; g < shape.groups(); ++g) {
        std::byte* header = out + g / chunk.groups * chunk.bytes();
        QuadCodes quads{};
        for (std::size_t r = 0; r < kRowsPerBlock; ++r) {
            const std::size_t row = block * kRowsPerBlock + r;
            if (row >= shape.rows) {
                break;
            }
            if (const char* fault = pack_scales(shape.kind, source + row * row_bytes, shape.columns, g, r, header)) {
                return {row, fault};
            }
            GroupCodes codes;
            read_codes(shape.kind, source + row * row_bytes, g, codes);
            for (std::size_t k = 0; k < kGroupSize; k += 2) {
                const std::size_t place = place_in_group(k);
                std::memcpy(&quads.code[place / 4][r][place % 4], &codes.code[k], 2);
            }
        }
        store_codes(shape.kind, quads, header + chunk.header_bytes + g % chunk.groups * chunk.group_bytes);
    }
    return {};
}

bool is_finite_element(WeightKind kind, const std::byte* p) noexcept {
    switch (kind) {
        case WeightKind::F32: {
            std::uint32_t bits = 0;
            std::memcpy(&bits, p, 4);
            return (bits & 0x7F800000U) != 0x7F800000U;
        }
        case WeightKind::F16: return is_finite_f16(word_at(p));
        case WeightKind::Bf16: return (word_at(p) & 0x7F80U) != 0x7F80U;
        case WeightKind::Fp8E4m3: return (byte_at(p, 0) & 0x7FU) != 0x7FU;
        default: return (byte_at(p, 0) & 0x7CU) != 0x7CU;
    }
}

PackFault pack_float_block(const WeightView& shape, const std::byte* source, std::size_t block, std::byte* out) {
    const std::size_t size = source_shape_of(shape.kind).bytes;
    for (std::size_t r = 0; r < kRowsPerBlock && block * kRowsPerBlock + r < shape.rows; ++r) {
        const std::size_t row = block * kRowsPerBlock + r;
        const std::byte* from = source + row * shape.columns * size;
        for (std::size_t k = 0; k < shape.columns; ++k, from += size) {
            if (!is_finite_element(shape.kind, from)) {
                return {row, "a weight is NaN or infinite"};
            }
            std::memcpy(out + (k * kRowsPerBlock + r) * size, from, size);
        }
    }
    return {};
}

const char* shape_fault(const WeightView& shape, std::size_t source_bytes, std::size_t out_bytes) noexcept {
    const ChunkShape chunk = chunk_shape_of(shape.kind);
    if (shape.rows == 0 || shape.columns == 0 || chunk.k_multiple == 0 || shape.columns % chunk.k_multiple != 0) {
        return "the number of columns does not fit the format";
    }
    if (source_bytes / source_row_bytes(shape.kind, shape.columns) != shape.rows ||
        source_bytes % source_row_bytes(shape.kind, shape.columns) != 0) {
        return "the tensor's size does not fit its shape";
    }
    return out_bytes < shape.bytes() ? "the output is too small" : nullptr;
}

}  // namespace

std::size_t source_row_bytes(WeightKind kind, std::size_t columns) noexcept {
    const SourceShape shape = source_shape_of(kind);
    if (shape.bytes == 0) {
        return model::int4_row_bytes(columns, shape.elements);
    }
    return columns / shape.elements * shape.bytes;
}

PackFault pack_row_blocks(const WeightView& shape, std::span<const std::byte> source, std::span<std::byte> out,
                          std::size_t block_begin, std::size_t block_end) noexcept {
    if (const char* fault = shape_fault(shape, source.size(), out.size())) {
        return {0, fault};
    }
    for (std::size_t b = block_begin; b < block_end && b < shape.row_blocks(); ++b) {
        std::byte* target = out.data() + b * shape.row_block_bytes();
        std::memset(target, 0, shape.row_block_bytes());
        const PackFault fault = is_integer(shape.kind) ? pack_integer_block(shape, source.data(), b, target)
                                                       : pack_float_block(shape, source.data(), b, target);
        if (fault.reason != nullptr) {
            return fault;
        }
    }
    return {};
}

void pack(WorkerTeam& team, const WeightView& shape, std::span<const std::byte> source, std::span<std::byte> out) {
    const char* wrong = shape_fault(shape, source.size(), out.size());
    std::atomic<std::size_t> bad_row{shape.rows};
    std::atomic<const char*> reason{wrong};
    if (wrong == nullptr) {
        constexpr std::size_t kBlocksPerPiece = 8;
        auto program = [&](Worker& worker) noexcept {
            worker.share((shape.row_blocks() + kBlocksPerPiece - 1) / kBlocksPerPiece, [&](std::size_t piece) {
                const PackFault fault =
                    pack_row_blocks(shape, source, out, piece * kBlocksPerPiece, (piece + 1) * kBlocksPerPiece);
                if (fault.reason != nullptr) {
                    bad_row.store(fault.row);
                    reason.store(fault.reason);
                }
            });
        };
        team.run(program);
    }
    if (const char* text = reason.load()) {
        const std::string row = wrong == nullptr ? "row " + std::to_string(bad_row.load()) + ": " : std::string();
        throw Error(ErrorCode::InvalidArgument,
                    "weights refused: " + row + text + "; the model file is damaged or of another format");
    }
}

}  // namespace perceptd::engine

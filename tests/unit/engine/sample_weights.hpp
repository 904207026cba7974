// Random weights in the source formats, and what they mean by the formats' definitions: the oracle of packing and of
// the matrix kernels, written from the formats, not from the packed layout.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/activations.hpp"
#include "engine/kernels.hpp"
#include "engine/pack.hpp"
#include "model/blocks.hpp"
#include "model/fp8.hpp"

namespace perceptd::engine {

inline constexpr WeightKind kAllKinds[] = {WeightKind::F32,     WeightKind::F16,     WeightKind::Bf16,
                                           WeightKind::Fp8E4m3, WeightKind::Fp8E5m2, WeightKind::Q4_0,
                                           WeightKind::Q4_1,    WeightKind::Q4_K,    WeightKind::Q6_K,
                                           WeightKind::Q8_0,    WeightKind::Int4G32, WeightKind::Int4G128};

/// Memory at a cache line's start.
class AlignedBytes {
public:
    explicit AlignedBytes(std::size_t size) : storage_(size + 64), size_(size) {}
    std::byte* data() { return storage_.data() + (64 - reinterpret_cast<std::uintptr_t>(storage_.data()) % 64) % 64; }
    std::span<std::byte> span() { return {data(), size_}; }

private:
    std::vector<std::byte> storage_;
    std::size_t size_;
};

/// s * (code - zero) + minimum of one element; a group's scale may itself be an integer times a float.
struct Element {
    int code = 0;           ///< after subtraction of the format's zero
    int integer_scale = 1;  ///< Q6_K: the int8 scale, part of the exact integer sum
    float scale = 0.0F;
    float minimum = 0.0F;
    float plain = 0.0F;  ///< float kinds
};

class SampleWeights {
public:
    SampleWeights(WeightKind kind, std::size_t rows, std::size_t columns, std::uint_fast32_t seed, int fill = -1)
        : kind_(kind),
          rows_(rows),
          columns_(columns),
          bytes_(rows * source_row_bytes(kind, columns)),
          packed_(WeightView{kind, rows, columns}.bytes()),
          row_scales_((rows + 7) / 8 * 8) {
        std::mt19937 random(seed);
        for (std::byte& b : bytes_) {
            b = static_cast<std::byte>(fill >= 0 ? static_cast<unsigned>(fill) : random() & 0xFFU);
        }
        if (is_int4()) {
            mend_int4_scales(random);
        } else {
            const std::size_t block = block_bytes();
            for (std::size_t at = 0; at < bytes_.size(); at += block) {
                mend_block(&bytes_[at], random);
            }
        }
        for (std::size_t row = 0; row < row_scales_.size(); ++row) {
            row_scales_[row] = 0.75F + 0.0625F * static_cast<float>(row % 3);
        }
    }

    [[nodiscard]] WeightView pack_now() {
        WeightView view{kind_, rows_, columns_};
        const PackFault fault = pack_row_blocks(view, bytes_, packed_.span(), 0, view.row_blocks());
        if (fault.reason != nullptr) {
            throw std::runtime_error(fault.reason);
        }
        view.data = packed_.data();
        view.row_scales = row_scales_.data();
        return view;
    }

    [[nodiscard]] Element element(std::size_t row, std::size_t k) const {
        const std::byte* source = &bytes_[row * source_row_bytes(kind_, columns_)];
        const auto u8 = [&](std::size_t i) { return std::to_integer<unsigned>(source[i]); };
        const auto f16 = [&](std::size_t i) {
            return model::decode_f16(static_cast<std::uint16_t>(u8(i) | (u8(i + 1) << 8U)));
        };
        Element e;
        const std::size_t g = k / 32;
        const std::size_t i = k % 32;
        const auto nibble = [&](std::size_t base) {
            return static_cast<int>(i < 16 ? u8(base + i) & 15U : u8(base + i - 16) >> 4U);
        };
        switch (kind_) {
            case WeightKind::F32: std::memcpy(&e.plain, source + 4 * k, 4); break;
            case WeightKind::F16: e.plain = f16(2 * k); break;
            case WeightKind::Bf16:
                e.plain = model::decode_bf16(static_cast<std::uint16_t>(u8(2 * k) | (u8(2 * k + 1) << 8U)));
                break;
            case WeightKind::Fp8E4m3:
                e.plain = model::decode_fp8(static_cast<std::uint8_t>(u8(k)), model::Fp8Format::E4m3);
                break;
            case WeightKind::Fp8E5m2:
                e.plain = model::decode_fp8(static_cast<std::uint8_t>(u8(k)), model::Fp8Format::E5m2);
                break;
            case WeightKind::Q4_0:
                e.scale = f16(18 * g);
                e.code = nibble(18 * g + 2) - 8;
                break;
            case WeightKind::Q4_1:
                e.scale = f16(20 * g);
                e.minimum = f16(20 * g + 2);
                e.code = nibble(20 * g + 4);
                break;
            case WeightKind::Q8_0:
                e.scale = f16(34 * g);
                e.code = static_cast<std::int8_t>(u8(34 * g + 2 + i));
                break;
            case WeightKind::Q4_K: {
                const std::size_t b = 144 * (k / 256);
                const std::size_t j = k % 256 / 32;
                const unsigned sc = j < 4 ? u8(b + 4 + j) & 63U : (u8(b + 8 + j) & 15U) | (u8(b + j) >> 6U << 4U);
                const unsigned m = j < 4 ? u8(b + 8 + j) & 63U : (u8(b + 8 + j) >> 4U) | (u8(b + 4 + j) >> 6U << 4U);
                e.scale = f16(b) * static_cast<float>(sc);
                e.minimum = -(f16(b + 2) * static_cast<float>(m));
                const unsigned both = u8(b + 16 + j / 2 * 32 + i);
                e.code = static_cast<int>(j % 2 == 0 ? both & 15U : both >> 4U);
                break;
            }
            case WeightKind::Q6_K: {
                const std::size_t b = 210 * (k / 256);
                const std::size_t in = k % 256;
                const std::size_t n = in / 128;
                const std::size_t quarter = in % 128 / 32;
                const unsigned low = u8(b + 64 * n + (quarter % 2) * 32 + i);
                const unsigned upper = u8(b + 128 + 32 * n + i) >> (2 * quarter) & 3U;
                e.code = static_cast<int>((quarter < 2 ? low & 15U : low >> 4U) | (upper << 4U)) - 32;
                e.integer_scale = static_cast<std::int8_t>(u8(b + 192 + in / 16));
                e.scale = f16(b + 208);
                break;
            }
            case WeightKind::Int4G32:
            case WeightKind::Int4G128: {
                const std::size_t group = k / block_elements();
                const auto nibble_of = [&](std::size_t plane, std::size_t index) {
                    const unsigned both = u8(plane + index / 2);
                    return static_cast<int>(index % 2 == 0 ? both & 15U : both >> 4U);
                };
                e.scale = f16(columns_ / 2 + 2 * group);
                e.code = nibble_of(0, k) - nibble_of(columns_ / 2 + 2 * (columns_ / block_elements()), group);
                break;
            }
        }
        return e;
    }

    [[nodiscard]] double value(std::size_t row, std::size_t k) const {
        const Element e = element(row, k);
        if (!is_integer(kind_)) {
            return static_cast<double>(e.plain) * (is_fp8() ? static_cast<double>(row_scales_[row]) : 1.0);
        }
        return static_cast<double>(e.scale) * e.integer_scale * e.code + static_cast<double>(e.minimum);
    }

    /// One output by the definition in kernels.hpp, in plain scalar code with int64 sums.
    [[nodiscard]] float product(std::size_t row, const ActivationGroup* codes, const float* floats) const {
        if (!is_integer(kind_)) {
            float chains[2] = {0.0F, 0.0F};
            for (std::size_t k = 0; k < columns_; ++k) {
                chains[k % 2] = std::fma(element(row, k).plain, floats[k], chains[k % 2]);
            }
            const float sum = chains[0] + chains[1];
            return is_fp8() ? sum * row_scales_[row] : sum;
        }
        float sum = 0.0F;
        for (std::size_t g = 0; g < columns_ / 32; ++g) {
            std::int64_t exact = 0;
            std::int64_t code_sum = 0;
            for (std::size_t i = 0; i < 32; ++i) {
                const Element e = element(row, 32 * g + i);
                const std::int64_t a = codes[g].codes[place_in_group(i)];
                exact += std::int64_t{e.integer_scale} * e.code * a;
                code_sum += a;
            }
            const Element e = element(row, 32 * g);
            sum = std::fma(e.scale * codes[g].scale, static_cast<float>(exact), sum);
            if (kind_ == WeightKind::Q4_1 || kind_ == WeightKind::Q4_K) {
                sum = std::fma(e.minimum / -8.0F * codes[g].scale, static_cast<float>(-8 * code_sum), sum);
            }
        }
        return sum;
    }

    std::vector<std::byte>& bytes() { return bytes_; }

private:
    [[nodiscard]] bool is_fp8() const { return kind_ == WeightKind::Fp8E4m3 || kind_ == WeightKind::Fp8E5m2; }
    [[nodiscard]] bool is_int4() const { return kind_ == WeightKind::Int4G32 || kind_ == WeightKind::Int4G128; }
    void mend_int4_scales(std::mt19937& random) {
        const std::size_t row_bytes = source_row_bytes(kind_, columns_);
        for (std::size_t row = 0; row < rows_; ++row) {
            for (std::size_t group = 0; group < columns_ / block_elements(); ++group) {
                put_f16(&bytes_[row * row_bytes + columns_ / 2 + 2 * group], random);
            }
        }
    }
    [[nodiscard]] std::size_t block_bytes() const {
        return source_row_bytes(kind_, 256) / (chunk_shape_of(kind_).k_multiple == 256 ? 1 : 256 / block_elements());
    }
    [[nodiscard]] std::size_t block_elements() const {
        return kind_ == WeightKind::Int4G128 ? 128 : is_integer(kind_) ? 32 : 1;
    }
    static void put_f16(std::byte* p, std::mt19937& random) {
        const float value = std::ldexp(static_cast<float>(random() % 2001) - 1000.0F, -14);
        const std::uint16_t code = model::encode_f16(value);
        std::memcpy(p, &code, 2);
    }
    /// Makes the random bytes of one block a legal block.
    void mend_block(std::byte* block, std::mt19937& random) const {
        switch (kind_) {
            case WeightKind::F32: {
                const float value = std::ldexp(static_cast<float>(random() % 20001) - 10000.0F, -14);
                std::memcpy(block, &value, 4);
                break;
            }
            case WeightKind::F16: put_f16(block, random); break;
            case WeightKind::Bf16:
                block[1] = static_cast<std::byte>((random() & 0x80U) | (0x3CU + random() % 4));
                break;
            case WeightKind::Fp8E4m3:
                block[0] = std::to_integer<unsigned>(block[0] & std::byte{0x7F}) == 0x7F ? std::byte{1} : block[0];
                break;
            case WeightKind::Fp8E5m2: block[0] = block[0] & std::byte{0xBF}; break;
            case WeightKind::Q4_1:
            case WeightKind::Q4_K:
                put_f16(block, random);
                put_f16(block + 2, random);
                break;
            case WeightKind::Q6_K: put_f16(block + 208, random); break;
            default: put_f16(block, random); break;
        }
    }

    WeightKind kind_;
    std::size_t rows_;
    std::size_t columns_;
    std::vector<std::byte> bytes_;
    AlignedBytes packed_;
    std::vector<float> row_scales_;
};

/// The sets to compare, the portable one first.
inline std::vector<const KernelTable*> available_tables() {
    std::vector<const KernelTable*> tables;
    for (const InstructionSet set : kInstructionSets) {
        if (is_available(set)) {
            tables.push_back(&kernels_of(set));
        }
    }
    return tables;
}

}  // namespace perceptd::engine

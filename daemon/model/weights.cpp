// One table of encodings; rows are handed to blocks, int4 or fp8.
#include "model/weights.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "model/blocks.hpp"
#include "model/fp8.hpp"
#include "model/int4.hpp"
#include "model/utf8.hpp"

namespace perceptd::model {
namespace {

struct EncodingRow {
    Encoding encoding;
    std::string_view name;
    TensorType type;
    std::size_t int4_group = 0;
};

// In the order of the enumerators.
constexpr std::array<EncodingRow, 12> kEncodings{{{Encoding::F32, "f32", TensorType::F32},
                                                  {Encoding::F16, "f16", TensorType::F16},
                                                  {Encoding::Bf16, "bf16", TensorType::Bf16},
                                                  {Encoding::Q8_0, "q8_0", TensorType::Q8_0},
                                                  {Encoding::Q4_0, "q4_0", TensorType::Q4_0},
                                                  {Encoding::Q4_1, "q4_1", TensorType::Q4_1},
                                                  {Encoding::Q4_K, "q4_k", TensorType::Q4_K},
                                                  {Encoding::Q6_K, "q6_k", TensorType::Q6_K},
                                                  {Encoding::Int4G32, "int4-g32", TensorType::I8, 32},
                                                  {Encoding::Int4G128, "int4-g128", TensorType::I8, 128},
                                                  {Encoding::Fp8E4m3, "fp8-e4m3", TensorType::I8},
                                                  {Encoding::Fp8E5m2, "fp8-e5m2", TensorType::I8}}};

const EncodingRow& row_of(Encoding encoding) noexcept {
    return kEncodings[static_cast<std::size_t>(encoding)];
}

Fp8Format format_of(Encoding encoding) noexcept {
    return encoding == Encoding::Fp8E4m3 ? Fp8Format::E4m3 : Fp8Format::E5m2;
}

[[noreturn]] void refuse(const Gguf& file, const TensorInfo& tensor, const std::string& reason,
                         ErrorCode code = ErrorCode::InvalidArgument) {
    throw Error(code, file.label() + ": tensor " + printable(tensor.name) + ": " + reason);
}

Encoding own_encoding(const Gguf& file, const TensorInfo& tensor, const std::string& key) {
    const GgufValue* const value = file.find(key);
    const auto name = value == nullptr ? std::nullopt : value->as_text();
    if (!name) {
        refuse(file, tensor, "stored as I8 without the entry " + key + ", so its meaning is unknown",
               ErrorCode::Unsupported);
    }
    const auto encoding = encoding_from(*name);
    if (!encoding || row_of(*encoding).type != TensorType::I8) {
        refuse(file, tensor, key + " is " + printable(*name) + "; int4-g32, int4-g128, fp8-e4m3 and fp8-e5m2 are known",
               ErrorCode::Unsupported);
    }
    return *encoding;
}

WeightMatrix own_matrix(const Gguf& file, const TensorInfo& tensor) {
    constexpr std::uint64_t kMaxColumns = std::uint64_t{1} << 32;
    const std::string key = std::string(kQuantizationKey) + std::string(tensor.name);
    WeightMatrix matrix{tensor.name, own_encoding(file, tensor, key), 0, tensor.rows(), tensor.bytes, {}};
    const GgufValue* const columns = file.find(key + std::string(kColumnsSuffix));
    matrix.columns = columns == nullptr ? 0 : columns->as_unsigned().value_or(0);
    if (matrix.columns == 0 || matrix.columns > kMaxColumns ||
        row_bytes_of(matrix.encoding, matrix.columns) != tensor.columns()) {
        refuse(
            file, tensor,
            key + std::string(kColumnsSuffix) + " does not fit rows of " + std::to_string(tensor.columns()) + " bytes");
    }
    if (!is_fp8(matrix.encoding)) {
        return matrix;
    }
    const TensorInfo* const scales = file.find_tensor(std::string(tensor.name) + std::string(kRowScaleSuffix));
    if (scales == nullptr || scales->type != TensorType::F32 || scales->columns() != matrix.rows ||
        scales->rows() != 1) {
        refuse(file, tensor,
               "needs an F32 tensor of the same name with " + std::string(kRowScaleSuffix) + " and one value per row");
    }
    matrix.row_scales = scales->bytes;
    return matrix;
}

}  // namespace

std::string_view name_of(Encoding encoding) noexcept {
    return row_of(encoding).name;
}

std::optional<Encoding> encoding_from(std::string_view name) noexcept {
    for (const EncodingRow& row : kEncodings) {
        if (row.name == name) {
            return row.encoding;
        }
    }
    return std::nullopt;
}

TensorType stored_type_of(Encoding encoding) noexcept {
    return row_of(encoding).type;
}

bool is_fp8(Encoding encoding) noexcept {
    return encoding == Encoding::Fp8E4m3 || encoding == Encoding::Fp8E5m2;
}

std::uint64_t column_multiple_of(Encoding encoding) noexcept {
    return block_weights_of(row_of(encoding).type);
}

std::uint64_t row_bytes_of(Encoding encoding, std::uint64_t columns) noexcept {
    const EncodingRow& row = row_of(encoding);
    if (row.int4_group != 0) {
        return int4_row_bytes(columns, row.int4_group);
    }
    return columns / block_weights_of(row.type) * block_bytes_of(row.type);
}

WeightMatrix matrix_of(const Gguf& file, const TensorInfo& tensor) {
    if (tensor.type == TensorType::I8) {
        return own_matrix(file, tensor);
    }
    const auto found = std::find_if(kEncodings.begin(), kEncodings.end(),
                                    [&](const EncodingRow& row) { return row.type == tensor.type; });
    return {tensor.name, found->encoding, tensor.columns(), tensor.rows(), tensor.bytes, {}};
}

void decode_row(const WeightMatrix& matrix, std::uint64_t index, std::span<float> weights) noexcept {
    const EncodingRow& how = row_of(matrix.encoding);
    const auto row = matrix.row(index);
    if (how.int4_group != 0) {
        return decode_int4_row(row, how.int4_group, weights);
    }
    if (is_fp8(matrix.encoding)) {
        const float scale = std::bit_cast<float>(load_u32(matrix.row_scales.subspan(4 * index)));
        for (std::size_t i = 0; i < weights.size(); ++i) {
            weights[i] = scale * decode_fp8(std::to_integer<std::uint8_t>(row[i]), format_of(matrix.encoding));
        }
        return;
    }
    const std::size_t block_weights = block_weights_of(how.type);
    const std::size_t block_bytes = block_bytes_of(how.type);
    for (std::size_t block = 0; block < weights.size() / block_weights; ++block) {
        decode_block(how.type, row.subspan(block * block_bytes, block_bytes),
                     weights.subspan(block * block_weights, block_weights));
    }
}

float encode_row(Encoding encoding, std::span<const float> weights, std::span<const float> importance,
                 std::span<std::byte> row) {
    constexpr float kHalfMax = 65504.0F;
    const EncodingRow& how = row_of(encoding);
    const bool has_float_range = encoding == Encoding::F32 || encoding == Encoding::Bf16 || is_fp8(encoding);
    float extreme = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (!std::isfinite(weights[i]) || (!has_float_range && std::abs(weights[i]) > kHalfMax)) {
            throw Error(ErrorCode::InvalidArgument, "weight " + std::to_string(i) + " of a row is " +
                                                        std::to_string(weights[i]) + ", which " +
                                                        std::string(how.name) + " cannot hold");
        }
        extreme = std::max(extreme, std::abs(weights[i]));
    }
    if (how.int4_group != 0) {
        encode_int4_row(weights, importance, how.int4_group, row);
        return 1.0F;
    }
    if (is_fp8(encoding)) {
        const float scale = std::max(extreme / fp8_max(format_of(encoding)), std::numeric_limits<float>::min());
        for (std::size_t i = 0; i < weights.size(); ++i) {
            row[i] = static_cast<std::byte>(encode_fp8(weights[i] / scale, format_of(encoding), Fp8Overflow::Saturate));
        }
        return scale;
    }
    if (!can_encode(how.type)) {
        throw Error(ErrorCode::Unsupported,
                    std::string(how.name) + " can be read but not made; use q4_0, q4_1, q6_k or q8_0");
    }
    const std::size_t block_weights = block_weights_of(how.type);
    const std::size_t block_bytes = block_bytes_of(how.type);
    for (std::size_t block = 0; block < weights.size() / block_weights; ++block) {
        encode_block(how.type, weights.subspan(block * block_weights, block_weights),
                     row.subspan(block * block_bytes, block_bytes));
    }
    return 1.0F;
}

std::optional<NonFiniteWeight> first_non_finite(const WeightMatrix& matrix) {
    std::vector<float> weights(matrix.columns);
    for (std::uint64_t row = 0; row < matrix.rows; ++row) {
        decode_row(matrix, row, weights);
        const auto bad =
            std::find_if(weights.begin(), weights.end(), [](float weight) { return !std::isfinite(weight); });
        if (bad != weights.end()) {
            return NonFiniteWeight{row, static_cast<std::uint64_t>(bad - weights.begin())};
        }
    }
    return std::nullopt;
}

}  // namespace perceptd::model

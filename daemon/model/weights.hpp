// Weight matrices as they are stored, row by row: GGUF's block types, and perceptd's own INT4 and FP8. Owns nothing;
// the bytes stay in the file. Never converts a whole matrix: callers ask for rows.
//
// perceptd's own encodings in GGUF: the tensor is of type I8 with dims {bytes of a row, rows}, and two metadata entries
// say what it holds, so that another reader refuses it instead of misreading it:
//   perceptd.quantization.<tensor>          string: int4-g32, int4-g128, fp8-e4m3 or fp8-e5m2
//   perceptd.quantization.<tensor>.columns  u64: weights of a row
// INT4 rows are as in int4.hpp. An FP8 row is one code per weight; the F32 tensor <tensor>.row_scale (one per row) has
// the factor that the decoded codes are multiplied with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/gguf.hpp"

namespace perceptd::model {

enum class Encoding : std::uint8_t {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q4_K,
    Q6_K,
    Int4G32,
    Int4G128,
    Fp8E4m3,
    Fp8E5m2
};

inline constexpr std::string_view kQuantizationKey = "perceptd.quantization.";
inline constexpr std::string_view kColumnsSuffix = ".columns";
inline constexpr std::string_view kRowScaleSuffix = ".row_scale";

/// "q4_0", "int4-g32", ... and back.
[[nodiscard]] std::string_view name_of(Encoding encoding) noexcept;
[[nodiscard]] std::optional<Encoding> encoding_from(std::string_view name) noexcept;

/// The GGUF type that stores `encoding`: I8 for perceptd's own.
[[nodiscard]] TensorType stored_type_of(Encoding encoding) noexcept;
[[nodiscard]] bool is_fp8(Encoding encoding) noexcept;
/// What a row's length must be a multiple of.
[[nodiscard]] std::uint64_t column_multiple_of(Encoding encoding) noexcept;
/// Bytes of a row; `columns` is a multiple of column_multiple_of() and below 2^40.
[[nodiscard]] std::uint64_t row_bytes_of(Encoding encoding, std::uint64_t columns) noexcept;

/// A stored matrix (a vector has one row). Copyable view; lives as long as the file's bytes.
struct WeightMatrix {
    std::string_view name;
    Encoding encoding = Encoding::F32;
    std::uint64_t columns = 0;
    std::uint64_t rows = 0;
    std::span<const std::byte> bytes;
    std::span<const std::byte> row_scales;  ///< FP8: one F32 per row; else empty

    [[nodiscard]] std::span<const std::byte> row(std::uint64_t index) const noexcept {
        const std::uint64_t row_bytes = bytes.size() / rows;
        return bytes.subspan(index * row_bytes, row_bytes);
    }
};

/// The matrix behind a tensor, with perceptd's own encodings resolved and checked against the tensor's size.
/// Throws Error(InvalidArgument or Unsupported) naming the tensor.
[[nodiscard]] WeightMatrix matrix_of(const Gguf& file, const TensorInfo& tensor);

/// Row `index` as floats; `weights` has `columns` places. Real-time safe.
void decode_row(const WeightMatrix& matrix, std::uint64_t index, std::span<float> weights) noexcept;

/// Encodes one row into `row` (row_bytes_of()) and returns its row scale (1 but for FP8). `importance` is per column or
/// empty; only INT4 uses it. Throws Error(InvalidArgument) for a NaN, an infinity or what the encoding cannot hold, and
/// Error(Unsupported) for Q4_K.
float encode_row(Encoding encoding, std::span<const float> weights, std::span<const float> importance,
                 std::span<std::byte> row);

struct NonFiniteWeight {
    std::uint64_t row = 0;
    std::uint64_t column = 0;
};

/// The first NaN or infinity, if any. Reads and decodes everything: when packing, not when serving.
[[nodiscard]] std::optional<NonFiniteWeight> first_non_finite(const WeightMatrix& matrix);

}  // namespace perceptd::model

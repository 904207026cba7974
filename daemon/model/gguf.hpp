// A GGUF file (version 2 or 3, little endian) as checked views: metadata and the tensor table. Owns the tables, borrows
// the bytes. Never trusts a word of the file: every count, length, offset and product is checked before it is used, and
// nothing is allocated by a count that the file's size does not cover.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor_type.hpp"

namespace perceptd::model {

/// The numbers are the file's.
enum class GgufType : std::uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

/// Bytes of one stored value; a string has at least the 8 of its length.
[[nodiscard]] std::size_t least_bytes_of(GgufType type) noexcept;

/// One metadata value; text and array bytes point into the file.
struct GgufValue {
    GgufType type = GgufType::U8;
    std::uint64_t bits = 0;                ///< numbers and bool: sign-extended integer, or the bits of the float
    std::string_view text;                 ///< String
    GgufType element_type = GgufType::U8;  ///< Array
    std::uint64_t count = 0;               ///< Array
    std::span<const std::byte> bytes;      ///< Array: elements as stored; strings with their lengths

    /// The value if it is a non-negative integer (any width) / a number / a bool / a string.
    [[nodiscard]] std::optional<std::uint64_t> as_unsigned() const noexcept;
    [[nodiscard]] std::optional<double> as_number() const noexcept;
    [[nodiscard]] std::optional<bool> as_bool() const noexcept;
    [[nodiscard]] std::optional<std::string_view> as_text() const noexcept;
};

struct GgufEntry {
    std::string_view key;
    GgufValue value;
    std::uint64_t at_byte = 0;  ///< where the entry starts in the file
};

struct TensorInfo {
    std::string_view name;
    TensorType type = TensorType::F32;
    std::uint32_t rank = 1;
    std::array<std::uint64_t, 4> dims{1, 1, 1, 1};  ///< dims[0] is contiguous (a row); those beyond rank are 1
    std::span<const std::byte> bytes;
    std::uint64_t at_byte = 0;  ///< where its description starts in the file

    [[nodiscard]] std::uint64_t columns() const noexcept { return dims[0]; }
    [[nodiscard]] std::uint64_t rows() const noexcept { return dims[1] * dims[2] * dims[3]; }
};

/// Reads the strings of an Array of String one by one; checks again, as a mapped file may have changed.
class GgufStrings {
public:
    explicit GgufStrings(const GgufValue& array) noexcept : rest_(array.bytes) {}
    /// The next string. Throws Error(InvalidArgument) beyond the end.
    [[nodiscard]] std::string_view next();

private:
    std::span<const std::byte> rest_;
};

/// Immutable after parse(); safe to read from any thread while the bytes live.
class Gguf {
public:
    static constexpr std::uint64_t kMaxEntryCount = 1U << 16;
    static constexpr std::uint64_t kMaxTensorCount = 1U << 16;
    static constexpr std::uint64_t kMaxKeyBytes = 65535;
    static constexpr std::uint64_t kMaxNameBytes = 64;

    /// Parses `bytes`, which must outlive the result; `label` names the file in errors. Time is O(n log n) in the size
    /// of the header. Throws Error(InvalidArgument or Unsupported): "label: byte N: reason".
    [[nodiscard]] static Gguf parse(std::span<const std::byte> bytes, std::string_view label);

    [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
    [[nodiscard]] std::uint32_t alignment_bytes() const noexcept { return alignment_bytes_; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
    [[nodiscard]] const std::string& label() const noexcept { return label_; }
    /// Metadata in the order of its keys; tensors in the order of their names.
    [[nodiscard]] std::span<const GgufEntry> metadata() const noexcept { return entries_; }
    [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept { return tensors_; }

    /// The value of `key`, or nullptr.
    [[nodiscard]] const GgufValue* find(std::string_view key) const noexcept;
    [[nodiscard]] const TensorInfo* find_tensor(std::string_view name) const noexcept;

private:
    friend class GgufParser;
    Gguf() = default;

    std::span<const std::byte> bytes_;
    std::string label_;
    std::uint32_t version_ = 0;
    std::uint32_t alignment_bytes_ = 32;
    std::vector<GgufEntry> entries_;
    std::vector<TensorInfo> tensors_;
};

}  // namespace perceptd::model

// The header of a GGUF file (version 3) in the making: metadata, then the tensor table. Owns the bytes of the header.
// Never holds a tensor's data: the caller streams it, tensor after tensor, each padded to the alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.hpp"

namespace perceptd::model {

/// Set-up only (allocates). Keys and names are taken as they are; the reader is the one that checks.
class GgufWriter {
public:
    static constexpr std::size_t kAlignmentBytes = 32;

    void add_u32(std::string_view key, std::uint32_t value);
    void add_u64(std::string_view key, std::uint64_t value);
    void add_f32(std::string_view key, float value);
    void add_bool(std::string_view key, bool value);
    void add_text(std::string_view key, std::string_view value);
    void add_texts(std::string_view key, std::span<const std::string> values);
    void add_floats(std::string_view key, std::span<const float> values);
    void add_integers(std::string_view key, std::span<const std::int32_t> values);
    /// Any value of another file, byte for byte.
    void add_value(std::string_view key, const GgufValue& value);

    /// Declares the next tensor; its data follows that of the ones before. Returns its size in bytes without padding.
    std::uint64_t add_tensor(std::string_view name, TensorType type, std::span<const std::uint64_t> dims);

    /// Magic, counts, metadata, table, and the padding before the first tensor.
    [[nodiscard]] std::vector<std::byte> header() const;
    /// Bytes of zero that follow `size_bytes` of a tensor.
    [[nodiscard]] static constexpr std::size_t padding_after(std::uint64_t size_bytes) noexcept {
        return static_cast<std::size_t>((kAlignmentBytes - size_bytes % kAlignmentBytes) % kAlignmentBytes);
    }
    /// All of the file: header and padded tensors.
    [[nodiscard]] std::uint64_t file_bytes() const { return header().size() + data_bytes_; }

private:
    void key(std::string_view name, GgufType type);

    std::vector<std::byte> metadata_;
    std::vector<std::byte> table_;
    std::uint64_t entry_count_ = 0;
    std::uint64_t tensor_count_ = 0;
    std::uint64_t data_bytes_ = 0;
};

}  // namespace perceptd::model

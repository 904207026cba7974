// GGUF files made by hand, word by word, so that tests can make wrong ones; and small whole models by the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.hpp"
#include "model/gguf_writer.hpp"

namespace perceptd::model::test {

class Bytes {
public:
    Bytes& u8(std::uint64_t value) { return put(value, 1); }
    Bytes& u32(std::uint64_t value) { return put(value, 4); }
    Bytes& u64(std::uint64_t value) { return put(value, 8); }
    Bytes& raw(std::string_view text) {
        for (const char c : text) {
            data_.push_back(static_cast<std::byte>(c));
        }
        return *this;
    }
    Bytes& text(std::string_view text) { return u64(text.size()).raw(text); }
    /// Magic, version and counts.
    Bytes& start(std::uint64_t tensors, std::uint64_t entries, std::uint64_t version = 3) {
        return raw("GGUF").u32(version).u64(tensors).u64(entries);
    }
    Bytes& entry(std::string_view key, GgufType type) { return text(key).u32(static_cast<std::uint32_t>(type)); }
    Bytes& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint64_t type, std::uint64_t offset) {
        text(name).u32(dims.size());
        for (const std::uint64_t dim : dims) {
            u64(dim);
        }
        return u32(type).u64(offset);
    }
    /// Pads to 32 and adds zeros.
    Bytes& data(std::size_t count) {
        data_.resize((data_.size() + 31) / 32 * 32 + count);
        return *this;
    }
    [[nodiscard]] std::span<const std::byte> span() const { return data_; }
    [[nodiscard]] std::vector<std::byte> take() const { return data_; }

private:
    Bytes& put(std::uint64_t value, int count) {
        for (int i = 0; i < count; ++i) {
            data_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
        }
        return *this;
    }
    std::vector<std::byte> data_;
};

/// Header and zeroed tensors.
inline std::vector<std::byte> whole_file(const GgufWriter& writer) {
    std::vector<std::byte> bytes = writer.header();
    bytes.resize(writer.file_bytes());
    return bytes;
}

}  // namespace perceptd::model::test

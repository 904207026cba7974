// Numbers and texts as the journal and the database hold them: varints (7 bits a byte, lowest first), fixed 32 and 64
// bits little endian, texts with their length. Owns what it wrote; a reader borrows. Never reads past its bytes: what
// is missing makes it bad, and a bad reader gives zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perceptd::store {

/// Thread-bound.
class ByteWriter {
public:
    void varint(std::uint64_t value) {
        for (; value > 0x7f; value >>= 7) {
            bytes_.push_back(static_cast<std::byte>(value | 0x80));
        }
        bytes_.push_back(static_cast<std::byte>(value));
    }
    /// The lowest `byte_count` bytes of `value`.
    void fixed(std::uint64_t value, int byte_count) {
        for (int i = 0; i < byte_count; ++i) {
            bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
        }
    }
    void text(std::string_view text) {
        varint(text.size());
        const auto raw = std::as_bytes(std::span(text));
        bytes_.insert(bytes_.end(), raw.begin(), raw.end());
    }
    void ids(std::span<const std::uint32_t> ids) {
        varint(ids.size());
        for (const std::uint32_t id : ids) {
            varint(id);
        }
    }
    /// Overwrites what was written before at `offset`.
    void patch(std::size_t offset, std::uint64_t value, int byte_count) noexcept {
        for (int i = 0; i < byte_count; ++i) {
            bytes_[offset + static_cast<std::size_t>(i)] = static_cast<std::byte>(value >> (8 * i));
        }
    }
    void clear() noexcept { bytes_.clear(); }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::string_view view() const noexcept {
        return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
    }

private:
    std::vector<std::byte> bytes_;
};

/// Thread-bound. Every call may come after a bad one.
class ByteReader {
public:
    explicit ByteReader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
    explicit ByteReader(std::string_view text) noexcept : bytes_(std::as_bytes(std::span(text))) {}

    std::uint64_t varint() noexcept {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 70; shift += 7) {
            const auto byte = static_cast<std::uint64_t>(fixed(1));
            if (shift == 63 && byte > 1) {
                break;
            }
            value |= (byte & 0x7f) << shift;
            if (byte < 0x80) {
                return is_good_ ? value : 0;
            }
        }
        is_good_ = false;
        return 0;
    }
    std::uint64_t fixed(int byte_count) noexcept {
        const auto count = static_cast<std::size_t>(byte_count);
        is_good_ = is_good_ && bytes_.size() >= count;
        if (!is_good_) {
            return 0;
        }
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < count; ++i) {
            value |= std::to_integer<std::uint64_t>(bytes_[i]) << (8 * i);
        }
        bytes_ = bytes_.subspan(count);
        return value;
    }
    std::string text() {
        const std::uint64_t size = varint();
        is_good_ = is_good_ && size <= bytes_.size();
        if (!is_good_) {
            return {};
        }
        std::string text(reinterpret_cast<const char*>(bytes_.data()), size);
        bytes_ = bytes_.subspan(size);
        return text;
    }
    std::vector<std::uint32_t> ids() {
        const std::uint64_t count = varint();
        is_good_ = is_good_ && count <= bytes_.size();  // one byte each at least
        std::vector<std::uint32_t> ids;
        for (std::uint64_t i = 0; is_good_ && i < count; ++i) {
            const std::uint64_t id = varint();
            is_good_ = is_good_ && id <= UINT32_MAX;
            ids.push_back(static_cast<std::uint32_t>(id));
        }
        return is_good_ ? ids : std::vector<std::uint32_t>();
    }
    [[nodiscard]] bool is_good() const noexcept { return is_good_; }
    [[nodiscard]] std::size_t left() const noexcept { return bytes_.size(); }

private:
    std::span<const std::byte> bytes_;
    bool is_good_ = true;
};

}  // namespace perceptd::store

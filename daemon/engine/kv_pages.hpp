// Where keys and values live: a pool of equal pages, each holding 32 consecutive positions of one sequence for all
// layers and KV heads. Borrows its memory; which page belongs to whom is the business of generate/kv_cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace perceptd::engine {

inline constexpr std::size_t kPagePositions = 32;
inline constexpr std::size_t kMaxHeadDimension = 256;

enum class KvFormat : std::uint8_t {
    F32,
    F16,
    Q8,       ///< int8 codes, one F16 scale per 32
    Fp8E4m3,  ///< saturating
};

/// The shape of one model's cache. head_dimension: a multiple of 32, at most kMaxHeadDimension.
struct KvShape {
    std::size_t layers = 0;
    std::size_t kv_heads = 0;
    std::size_t head_dimension = 0;
    KvFormat format = KvFormat::F16;

    /// Bytes of one K or V row of one head.
    [[nodiscard]] constexpr std::size_t row_bytes() const noexcept {
        switch (format) {
            case KvFormat::F32: return head_dimension * 4;
            case KvFormat::F16: return head_dimension * 2;
            case KvFormat::Q8: return head_dimension + head_dimension / 32 * 2;
            case KvFormat::Fp8E4m3: return head_dimension;
        }
        return 0;
    }
    [[nodiscard]] constexpr std::size_t page_bytes() const noexcept {
        return layers * kv_heads * 2 * kPagePositions * row_bytes();
    }
    /// Bytes that one position adds, all layers.
    [[nodiscard]] constexpr std::size_t position_bytes() const noexcept { return layers * kv_heads * 2 * row_bytes(); }
};

/// One sequence's cache: slot s is row s % 32 of page page_table[s / 32]. Borrowed.
struct KvView {
    KvShape shape;
    std::byte* pool = nullptr;
    std::span<const std::uint32_t> page_table;

    [[nodiscard]] std::byte* key_row(std::size_t layer, std::size_t head, std::size_t slot) const noexcept {
        const std::size_t rows = (layer * shape.kv_heads + head) * 2 * kPagePositions + slot % kPagePositions;
        return pool + page_table[slot / kPagePositions] * shape.page_bytes() + rows * shape.row_bytes();
    }
    [[nodiscard]] std::byte* value_row(std::size_t layer, std::size_t head, std::size_t slot) const noexcept {
        return key_row(layer, head, slot) + kPagePositions * shape.row_bytes();
    }
    /// Slots that the page table can hold.
    [[nodiscard]] std::size_t capacity() const noexcept { return page_table.size() * kPagePositions; }
};

/// Copies the rows of `from` to `to` in all layers and heads: how an accepted tree path becomes the sequence.
void copy_slot(const KvView& kv, std::size_t from, std::size_t to) noexcept;

}  // namespace perceptd::engine

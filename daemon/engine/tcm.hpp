// A small fast memory that is filled by DMA, played on the CPU: what the tile planner plans for, with every transfer
// counted. Owns its bytes. Never hands out more than it has: a plan that does not fit is a fault, not a slow run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/contract.hpp"

namespace perceptd::engine {

/// Thread-bound. Places are given out upwards and taken back all at once.
class Tcm {
public:
    explicit Tcm(std::uint64_t size_bytes) : bytes_(size_bytes) {}

    /// `count` elements of T, uninitialized.
    template <typename T>
    [[nodiscard]] T* take(std::uint64_t count) noexcept {
        void* const place = bytes_.data() + used_bytes_;
        used_bytes_ += count * sizeof(T);
        PERCEPTD_ASSERT(used_bytes_ <= bytes_.size());
        peak_bytes_ = used_bytes_ > peak_bytes_ ? used_bytes_ : peak_bytes_;
        return static_cast<T*>(place);
    }
    void clear() noexcept { used_bytes_ = 0; }

    void load(void* to, const void* from, std::uint64_t size_bytes) noexcept { move(to, from, size_bytes); }
    void store(void* to, const void* from, std::uint64_t size_bytes) noexcept { move(to, from, size_bytes); }
    /// Rows that lie apart in memory, fetched by one transfer with a stride.
    void load_rows(void* to, const void* from, std::uint64_t row_bytes, std::uint64_t row_count,
                   std::uint64_t stride_bytes) noexcept {
        for (std::uint64_t row = 0; row < row_count; ++row) {
            std::memcpy(static_cast<std::byte*>(to) + row * row_bytes,
                        static_cast<const std::byte*>(from) + row * stride_bytes, row_bytes);
        }
        count(row_bytes * row_count);
    }
    void store_rows(void* to, const void* from, std::uint64_t row_bytes, std::uint64_t row_count,
                    std::uint64_t stride_bytes) noexcept {
        for (std::uint64_t row = 0; row < row_count; ++row) {
            std::memcpy(static_cast<std::byte*>(to) + row * stride_bytes,
                        static_cast<const std::byte*>(from) + row * row_bytes, row_bytes);
        }
        count(row_bytes * row_count);
    }

    [[nodiscard]] std::uint64_t dram_bytes() const noexcept { return dram_bytes_; }
    [[nodiscard]] std::uint64_t dma_count() const noexcept { return dma_count_; }
    [[nodiscard]] std::uint64_t peak_bytes() const noexcept { return peak_bytes_; }

private:
    void move(void* to, const void* from, std::uint64_t size_bytes) noexcept {
        std::memcpy(to, from, size_bytes);
        count(size_bytes);
    }
    void count(std::uint64_t size_bytes) noexcept {
        dram_bytes_ += size_bytes;
        ++dma_count_;
    }

    std::vector<std::byte> bytes_;
    std::uint64_t used_bytes_ = 0;
    std::uint64_t peak_bytes_ = 0;
    std::uint64_t dram_bytes_ = 0;
    std::uint64_t dma_count_ = 0;
};

}  // namespace perceptd::engine

// A bounded queue from many threads to one, of movable records. Owns the records that are in it. The overflow policy is
// in the type: push() rejects when full and leaves the record with its giver. Each cell carries the turn it is in: its
// place in the order of pushes, one more once it is filled. So a cell is touched by one thread at a time and nobody
// waits for a lock. A producer that stops between taking a cell and filling it holds up what came after it, for as long
// as the scheduler keeps it away; never for ever, and never the other producers.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/contract.hpp"

namespace perceptd {

/// Threads: push() from any, pop() from one. Real-time after construction: no allocation, no lock, no system call.
template <typename T>
class MpscRing {
public:
    /// `capacity`: a power of two.
    explicit MpscRing(std::size_t capacity) : cells_(capacity), mask_(capacity - 1) {
        PERCEPTD_ASSERT(capacity >= 2 && (capacity & mask_) == 0);
        for (std::size_t i = 0; i < capacity; ++i) {
            cells_[i].turn.store(i, std::memory_order_relaxed);
        }
    }

    /// False when full; `record` is then untouched.
    [[nodiscard]] bool push(T&& record) noexcept {
        std::size_t tail = tail_.load(std::memory_order_relaxed);
        for (;;) {
            Cell& cell = cells_[tail & mask_];
            const std::size_t turn = cell.turn.load(std::memory_order_acquire);
            if (turn == tail) {
                if (tail_.compare_exchange_weak(tail, tail + 1, std::memory_order_relaxed)) {
                    cell.record = std::move(record);
                    cell.turn.store(tail + 1, std::memory_order_release);
                    return true;
                }
            } else if (turn < tail) {
                return false;  // the consumer has not come round yet
            } else {
                tail = tail_.load(std::memory_order_relaxed);
            }
        }
    }

    /// False when empty, or while the next record is still being written.
    [[nodiscard]] bool pop(T& record) noexcept {
        Cell& cell = cells_[head_ & mask_];
        if (cell.turn.load(std::memory_order_acquire) != head_ + 1) {
            return false;
        }
        record = std::move(cell.record);
        cell.turn.store(head_ + mask_ + 1, std::memory_order_release);
        ++head_;
        return true;
    }

private:
    struct Cell {
        std::atomic<std::size_t> turn{0};
        T record{};
    };

    std::vector<Cell> cells_;
    std::size_t mask_;
    alignas(64) std::atomic<std::size_t> tail_{0};
    alignas(64) std::size_t head_ = 0;  // the consumer's alone
};

}  // namespace perceptd

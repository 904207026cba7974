// A bounded queue that many threads fill and one empties.
// Owns its cells, made once.
// Never blocks, never allocates after construction, never overwrites what was not taken.
//
// Each cell carries the stamp of its turn, as in D. Vyukov's bounded queue (1024cores.net, "bounded MPMC queue").
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace perceptd {

/// push() from any thread, pop() from one. Real-time: push() retries only while other threads push at the same moment.
template <class Item, std::size_t kCapacity>
class MpscRing {
    static_assert(std::has_single_bit(kCapacity) && std::is_trivially_copyable_v<Item>);

public:
    MpscRing() : cells_(std::make_unique<Cell[]>(kCapacity)) {
        for (std::size_t i = 0; i < kCapacity; ++i) {
            cells_[i].turn.store(i, std::memory_order_relaxed);
        }
    }

    /// False when full.
    [[nodiscard]] bool push(const Item& item) noexcept {
        std::size_t position = tail_.load(std::memory_order_relaxed);
        for (;;) {
            Cell& cell = cells_[position % kCapacity];
            const std::size_t turn = cell.turn.load(std::memory_order_acquire);
            if (turn == position) {
                if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
                    cell.item = item;
                    // Sequentially consistent, as pop()'s load: a pusher may look next whether the taker sleeps.
                    cell.turn.store(position + 1, std::memory_order_seq_cst);
                    return true;
                }
            } else if (turn < position) {
                return false;
            } else {
                position = tail_.load(std::memory_order_relaxed);
            }
        }
    }

    /// False when there is nothing.
    [[nodiscard]] bool pop(Item& item) noexcept {
        Cell& cell = cells_[head_ % kCapacity];
        if (cell.turn.load(std::memory_order_seq_cst) != head_ + 1) {
            return false;
        }
        item = cell.item;
        cell.turn.store(head_ + kCapacity, std::memory_order_release);
        ++head_;
        return true;
    }

private:
    struct Cell {
        std::atomic<std::size_t> turn;
        Item item;
    };

    std::unique_ptr<Cell[]> cells_;
    alignas(64) std::atomic<std::size_t> tail_{0};
    alignas(64) std::size_t head_ = 0;
};

}  // namespace perceptd

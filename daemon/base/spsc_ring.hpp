// A bounded single-producer single-consumer queue of trivially copyable records. The overflow policy is in
// the type: push() rejects when full, so the producer counts the loss. Payloads stay in arenas; only records move.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <type_traits>

namespace perceptd {

/// Threads: push() from one thread, pop() from one other. Real-time: wait-free, no allocation, no syscall.
template <typename T, std::size_t kCapacity>
class SpscRing {
    static_assert(std::is_trivially_copyable_v<T>, "records are copied as bytes");
    static_assert(kCapacity >= 2 && (kCapacity & (kCapacity - 1)) == 0, "capacity is a power of two");
    static_assert(std::atomic<std::size_t>::is_always_lock_free);

public:
    /// False when full; `record` is then not taken.
    [[nodiscard]] bool push(const T& record) noexcept {
        const std::size_t tail = tail_.load(std::memory_order_relaxed);
        if (tail - cached_head_ == kCapacity) {
            cached_head_ = head_.load(std::memory_order_acquire);
            if (tail - cached_head_ == kCapacity) {
                return false;
            }
        }
        slots_[tail & (kCapacity - 1)] = record;
        tail_.store(tail + 1, std::memory_order_release);
        return true;
    }

    /// False when empty; `record` is then untouched.
    [[nodiscard]] bool pop(T& record) noexcept {
        const std::size_t head = head_.load(std::memory_order_relaxed);
        if (head == cached_tail_) {
            cached_tail_ = tail_.load(std::memory_order_acquire);
            if (head == cached_tail_) {
                return false;
            }
        }
        record = slots_[head & (kCapacity - 1)];
        head_.store(head + 1, std::memory_order_release);
        return true;
    }

    /// Records waiting now; exact only on the two owning threads.
    [[nodiscard]] std::size_t size() const noexcept {
        return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
    }

    static constexpr std::size_t capacity() noexcept { return kCapacity; }

private:
    alignas(64) std::atomic<std::size_t> head_{0};
    std::size_t cached_tail_ = 0;  // consumer's view
    alignas(64) std::atomic<std::size_t> tail_{0};
    std::size_t cached_head_ = 0;  // producer's view
    alignas(64) std::array<T, kCapacity> slots_{};
};

}  // namespace perceptd

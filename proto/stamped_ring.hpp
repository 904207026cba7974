// One direction of a ring in memory that two processes share: one side writes entries, the other takes them.
// Owns nothing but its own position; the memory is the caller's.
// Never trusts what the other side wrote, never waits, never makes a system call.
//
// Every entry begins with a 64-bit sequence: the stamp of its position, written last. A reader that finds nothing looks
// at one cache line, and the two sides share no other as long as the ring is not full.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace perceptd {

enum class [[nodiscard]] RingResult : std::uint8_t {
    Ok,
    Nothing,  ///< taking: nothing there; writing: no room
    Broken,   ///< the other side wrote what the contract forbids: use the ring no more
};

template <class Entry>
concept StampedEntry = std::is_trivially_copyable_v<Entry> && std::is_same_v<decltype(Entry::sequence), std::uint64_t>;

/// The writing side. Thread-bound. Real-time: no allocation, no lock, no system call.
template <StampedEntry Entry, std::uint32_t kCapacity>
class StampedWriter {
    static_assert(std::has_single_bit(kCapacity));

public:
    /// `head` is the word in which the other side says how many entries it has taken.
    StampedWriter(Entry* entries, std::uint64_t* head) noexcept : entries_(entries), head_(head) {}

    /// Copies the first `used_bytes` of `entry` into the ring and stamps them. Nothing: full, and nothing was written.
    RingResult write(const Entry& entry, std::size_t used_bytes = sizeof(Entry)) noexcept {
        if (tail_ - taken_ == kCapacity) {
            const std::uint64_t head = std::atomic_ref<std::uint64_t>(*head_).load(std::memory_order_acquire);
            if (head - taken_ > tail_ - taken_) {
                return RingResult::Broken;
            }
            taken_ = head;
            if (tail_ - taken_ == kCapacity) {
                return RingResult::Nothing;
            }
        }
        Entry& slot = entries_[tail_ % kCapacity];
        std::memcpy(reinterpret_cast<std::byte*>(&slot) + sizeof(std::uint64_t),
                    reinterpret_cast<const std::byte*>(&entry) + sizeof(std::uint64_t),
                    used_bytes - sizeof(std::uint64_t));
        ++tail_;
        // Sequentially consistent: the look at the sleeper's word must not overtake it.
        std::atomic_ref<std::uint64_t>(slot.sequence).store(tail_, std::memory_order_seq_cst);
        return RingResult::Ok;
    }

    [[nodiscard]] std::uint64_t written_count() const noexcept { return tail_; }

private:
    Entry* entries_;
    std::uint64_t* head_;
    std::uint64_t tail_ = 0;
    std::uint64_t taken_ = 0;  // the head as it was last read
};

/// The taking side. Thread-bound. Real-time: no allocation, no lock, no system call.
template <StampedEntry Entry, std::uint32_t kCapacity>
class StampedReader {
    static_assert(std::has_single_bit(kCapacity));

public:
    StampedReader(const Entry* entries, std::uint64_t* head) noexcept : entries_(entries), head_(head) {}

    /// Copies the next entry: whatever the other side does later, the copy stays. Its contents are still to be checked.
    RingResult take(Entry& entry) noexcept {
        // The cast: atomic_ref of C++20 takes no const object, and this one is only read.
        auto& stamp = const_cast<std::uint64_t&>(entries_[head_count_ % kCapacity].sequence);
        const std::uint64_t sequence = std::atomic_ref<std::uint64_t>(stamp).load(std::memory_order_seq_cst);
        if (sequence != head_count_ + 1) {
            const std::uint64_t before = head_count_ < kCapacity ? 0 : head_count_ + 1 - kCapacity;
            return sequence == before ? RingResult::Nothing : RingResult::Broken;
        }
        std::memcpy(&entry, &entries_[head_count_ % kCapacity], sizeof(Entry));
        ++head_count_;
        std::atomic_ref<std::uint64_t>(*head_).store(head_count_, std::memory_order_release);
        return RingResult::Ok;
    }

    [[nodiscard]] std::uint64_t taken_count() const noexcept { return head_count_; }

private:
    const Entry* entries_;
    std::uint64_t* head_;
    std::uint64_t head_count_ = 0;
};

/// "I am about to sleep", said by one side and found by the other. Each function is one atomic access.
class SleepWord {
public:
    explicit SleepWord(std::uint32_t* word) noexcept : word_(word) {}

    /// The sleeper: look once more after this, then sleep.
    void announce() noexcept { access().exchange(1, std::memory_order_seq_cst); }
    /// The sleeper, awake again.
    void withdraw() noexcept { access().store(0, std::memory_order_relaxed); }
    /// The other side, after a write: true once per announcement: ring now.
    [[nodiscard]] bool must_ring() noexcept {
        return access().load(std::memory_order_seq_cst) != 0 && access().exchange(0, std::memory_order_relaxed) != 0;
    }

private:
    [[nodiscard]] std::atomic_ref<std::uint32_t> access() const noexcept {
        return std::atomic_ref<std::uint32_t>(*word_);
    }

    std::uint32_t* word_;
};

}  // namespace perceptd

// The newest value of a small record, published by one writer to any reader: the two-slot latch of the
// kernel's seqcount_latch. A reader never waits for a preempted writer: it reads the copy not being written.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace perceptd {

/// Threads: store() from one thread; load() from any. Real-time: no allocation, no lock; load() retries only
/// when the writer published twice during the read. Words are atomic so that ThreadSanitizer needs no suppression.
template <typename T>
class LatchedCell {
    static_assert(std::is_trivially_copyable_v<T>);
    static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;
    using Words = std::array<std::atomic<std::uint64_t>, kWords>;

public:
    LatchedCell() noexcept { store(T{}); }

    void store(const T& value) noexcept {
        std::array<std::uint64_t, kWords> words{};
        std::memcpy(words.data(), &value, sizeof(T));
        const std::uint64_t sequence = sequence_.load(std::memory_order_relaxed);
        // Odd: readers use copy 1 while copy 0 changes; even: the other way round.
        sequence_.store(sequence + 1, std::memory_order_release);
        write(copies_[0], words);
        sequence_.store(sequence + 2, std::memory_order_release);
        write(copies_[1], words);
    }

    [[nodiscard]] T load() const noexcept {
        std::array<std::uint64_t, kWords> words{};
        std::uint64_t before = 0;
        do {
            before = sequence_.load(std::memory_order_acquire);
            const Words& copy = copies_[before & 1];
            for (std::size_t i = 0; i < kWords; ++i) {
                words[i] = copy[i].load(std::memory_order_acquire);
            }
        } while (sequence_.load(std::memory_order_relaxed) != before);
        T value;
        std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
        return value;
    }

private:
    static void write(Words& copy, const std::array<std::uint64_t, kWords>& words) noexcept {
        for (std::size_t i = 0; i < kWords; ++i) {
            // Release: a reader that sees a new word also sees the sequence that announced it.
            copy[i].store(words[i], std::memory_order_release);
        }
    }

    std::atomic<std::uint64_t> sequence_{0};
    std::array<Words, 2> copies_{};
};

}  // namespace perceptd

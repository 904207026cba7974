// How long to look for the other side before sleeping, learned from how long it took lately.
// Owns an estimate. Never reads a clock while the answers come quickly.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace perceptd {

/// One step of waiting on a word: tells the core that this is a spin.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

/// spin_pause() steps in a microsecond, measured once per process (set-up: takes some 50 us).
inline std::uint32_t spin_rounds_per_us() noexcept {
    static const std::uint32_t rounds_per_us = [] {
        constexpr std::uint32_t kRounds = 1000;
        std::int64_t best_ns = INT64_MAX;
        for (int i = 0; i < 3; ++i) {
            const auto start = std::chrono::steady_clock::now();
            for (std::uint32_t round = 0; round < kRounds; ++round) {
                spin_pause();
            }
            const auto spent = std::chrono::steady_clock::now() - start;
            best_ns = std::min<std::int64_t>(best_ns, std::chrono::nanoseconds(spent).count());
        }
        return std::max<std::uint32_t>(1,
                                       static_cast<std::uint32_t>(kRounds * 1000 / std::max<std::int64_t>(1, best_ns)));
    }();
    return rounds_per_us;
}

/// Thread-bound. Real-time. A wait that is expected to be longer than the limit is slept through at once; every 32nd is
/// spun all the same, so that two sides that sleep only because the other does find out.
class SpinBudget {
public:
    /// `limit_us` 0: always sleep at once.
    explicit SpinBudget(std::uint32_t limit_us) noexcept
        : rounds_per_us_(limit_us == 0 ? 1 : spin_rounds_per_us()), limit_(limit_us * rounds_per_us_) {}

    /// Rounds to spin in the wait that begins now.
    [[nodiscard]] std::uint32_t rounds() noexcept {
        if (expected_ <= limit_) {
            return limit_ == 0 ? 0 : std::min(limit_, 2 * expected_ + kSlack);
        }
        return ++long_waits_ % kProbeEvery == 0 ? limit_ : 0;
    }
    /// The wait ended while spinning.
    void found_after(std::uint32_t rounds) noexcept { learn(rounds); }
    /// The wait was slept through.
    void slept(std::int64_t duration_ns) noexcept {
        const std::int64_t longest_us = limit_ / rounds_per_us_ * 8;
        learn(static_cast<std::uint32_t>(std::clamp<std::int64_t>(duration_ns / 1000, 0, longest_us)) * rounds_per_us_);
    }

private:
    static constexpr std::uint32_t kSlack = 64;
    static constexpr std::uint32_t kProbeEvery = 32;

    void learn(std::uint32_t rounds) noexcept {
        const auto difference = static_cast<std::int64_t>(rounds) - static_cast<std::int64_t>(expected_);
        expected_ = static_cast<std::uint32_t>(static_cast<std::int64_t>(expected_) + difference / 8);
    }

    std::uint32_t rounds_per_us_;
    std::uint32_t limit_;
    std::uint32_t expected_ = 0;
    std::uint32_t long_waits_ = 0;
};

}  // namespace perceptd

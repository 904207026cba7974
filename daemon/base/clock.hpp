// The hub clock: CLOCK_MONOTONIC in int64 nanoseconds. Every *_at_ns and *_hub_ns in the tree is this clock.
#pragma once

#include <time.h>

#include <cstdint>

namespace perceptd {

inline constexpr std::int64_t kNsPerUs = 1'000;
inline constexpr std::int64_t kNsPerMs = 1'000'000;
inline constexpr std::int64_t kNsPerSecond = 1'000'000'000;

/// Now on CLOCK_MONOTONIC. Real-time safe (vDSO).
inline std::int64_t monotonic_ns() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * kNsPerSecond + now.tv_nsec;
}

/// CLOCK_BOOTTIME minus CLOCK_MONOTONIC; it grows only while the machine sleeps.
inline std::int64_t suspended_ns() noexcept {
    timespec boot{};
    ::clock_gettime(CLOCK_BOOTTIME, &boot);
    return static_cast<std::int64_t>(boot.tv_sec) * kNsPerSecond + boot.tv_nsec - monotonic_ns();
}

}  // namespace perceptd

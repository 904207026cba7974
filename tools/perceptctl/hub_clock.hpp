// The clock of every *_ns that the daemon shows: CLOCK_MONOTONIC.
// Owns nothing.
// Never the wall clock.
#pragma once

#include <time.h>

#include <cstdint>

namespace perceptctl {

inline std::int64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace perceptctl

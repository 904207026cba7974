// Contract checks that stay on in release builds. A broken invariant of our own ends the process
// (systemd restarts it); data from clients, files and drivers is never checked with this.
#pragma once

namespace perceptd {

/// Prints the broken condition to stderr and aborts. Async-signal-safe.
[[noreturn]] void contract_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace perceptd

#define PERCEPTD_ASSERT(condition)                                       \
    do {                                                                 \
        if (!(condition)) [[unlikely]] {                                 \
            ::perceptd::contract_failed(#condition, __FILE__, __LINE__); \
        }                                                                \
    } while (false)

// Marks threads as hot and counts what they must not do: heap allocations after the warm-up.
// The counter is fed by the daemon's replaced operator new (base/hot_path.cpp); a test adds a malloc interposer.
#pragma once

#include <cstdint>

namespace perceptd::hot_path {

/// From here to its end the calling thread is hot: each operator new on it is counted. Nests are not allowed.
class Scope {
public:
    Scope() noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
};

/// Allocations made on hot threads since the process started. Any thread.
std::uint64_t allocation_count() noexcept;

/// Called by the replaced allocator and by test interposers; counts only on a hot thread.
void note_allocation() noexcept;

}  // namespace perceptd::hot_path

// The windows that one client holds: sent to it and not yet released.
// Owns a lease of every block of theirs.
// Never holds more than it was made for, and never speaks to the client.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "arena/lease.hpp"
#include "session/delivery.hpp"

namespace perceptd::session {

/// Thread-bound (main thread).
class HeldWindows {
public:
    /// Allocates its room.
    explicit HeldWindows(std::size_t count_max) : count_max_(count_max) { windows_.reserve(count_max); }

    [[nodiscard]] bool is_full() const noexcept { return windows_.size() >= count_max_; }
    [[nodiscard]] std::size_t size() const noexcept { return windows_.size(); }
    /// Takes leases of the blocks that `sensors` allow. Not when it is full.
    void add(const WindowOut& window, SensorSet sensors) noexcept;
    /// False: it does not hold that window.
    bool release(std::uint64_t window_id) noexcept;
    /// False: it holds none.
    bool release_oldest() noexcept;
    void release_all() noexcept { windows_.clear(); }
    /// Hub time at which the oldest window ended; INT64_MAX when there is none.
    [[nodiscard]] std::int64_t oldest_ns() const noexcept;

private:
    struct Window {
        std::uint64_t id = 0;
        std::int64_t t1_ns = 0;
        std::array<arena::Lease, 4> leases;
        std::array<arena::Lease, kSoundsMax> sounds;
    };

    std::size_t count_max_;
    std::vector<Window> windows_;  // oldest first; its capacity never changes
};

}  // namespace perceptd::session

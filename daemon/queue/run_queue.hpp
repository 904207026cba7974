// The jobs that a preemptive device holds, and which of them has the device next. Owns its places; knows jobs by
// number. Never looks at a clock: ranks and grants come from the scheduler, times from whoever runs segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "queue/device.hpp"

namespace perceptd::queue {

/// Thread-bound to the device's thread. Real-time after construction; every function looks at each held job at most
/// once.
class RunQueue {
public:
    static constexpr std::size_t kNone = SIZE_MAX;

    /// One held job. `place` in the functions below is its index, the same until it is removed.
    struct Held {
        JobId id = 0;  ///< 0: a free place
        Rank rank;
        std::int64_t granted_ns = 0;  ///< in all
        std::int64_t ran_ns = 0;
        std::uint64_t order = 0;  ///< of arrival: decides between equal ranks
    };

    explicit RunQueue(std::size_t jobs_max) : held_(jobs_max) {}

    /// A new job's place; kNone when there is no room or the id is held.
    [[nodiscard]] std::size_t add(JobId id, const Rank& rank, std::int64_t grant_ns) noexcept;
    /// A new rank, and so much time from now on (an overdrawn grant is the scheduler's to settle). Nothing for an id
    /// that is not held.
    void grant(JobId id, const Rank& rank, std::int64_t grant_ns) noexcept;
    /// The job whose segment is next: a cancelled one at once, else the lowest rank of those with time left; kNone:
    /// none.
    [[nodiscard]] std::size_t next() const noexcept;
    /// A segment of `place` took so long. True: its time is spent now (told once; it waits for a grant).
    [[nodiscard]] bool charge(std::size_t place, std::int64_t ran_ns) noexcept;
    void remove(std::size_t place) noexcept { held_[place] = {}; }

    [[nodiscard]] std::size_t find(JobId id) const noexcept;
    [[nodiscard]] Held& at(std::size_t place) noexcept { return held_[place]; }
    [[nodiscard]] std::size_t capacity() const noexcept { return held_.size(); }

private:
    std::vector<Held> held_;
    std::uint64_t arrivals_ = 0;
};

}  // namespace perceptd::queue

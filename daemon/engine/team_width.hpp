// How many workers of a team the next pass gets. Owns a few counters. Never looks at a clock or a thread itself.
//
// On a machine that others use too, a barrier waits for whichever worker the kernel has taken off its processor, for
// milliseconds where a pass takes one. Then half the workers do more than all. What the passes wait is watched; twice
// in short time too much halves the team for a while, which grows as long as trying again fails.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace perceptd::engine {

/// Real-time: all. Thread-bound.
class TeamWidth {
public:
    static constexpr std::int64_t kShortestRestNs = 20 * kNsPerMs;
    static constexpr std::int64_t kLongestRestNs = 640 * kNsPerMs;

    explicit TeamWidth(std::size_t worker_count) noexcept : all_(worker_count), width_(worker_count) {}

    [[nodiscard]] std::size_t next() const noexcept { return width_; }

    /// A pass of next() workers took `pass_ns`, of which one of them slept `waited_ns` before barriers.
    void observe(std::int64_t pass_ns, std::int64_t waited_ns) noexcept {
        if (width_ > 1) {
            // One slow pass is an accident, unless it is the answer to a trial.
            const bool is_slow = waited_ns > pass_ns / 3;
            slowness_ = is_slow ? slowness_ + 2 : std::max(slowness_ - 1, 0);
            calm_passes_ = is_slow ? 0 : calm_passes_ + 1;
            if (slowness_ > 2 || (is_slow && is_trial_)) {
                width_ /= 2;
                left_ns_ = rest_ns_;
                rest_ns_ = std::min(2 * rest_ns_, kLongestRestNs);
                slowness_ = 0;
                is_trial_ = false;
                return;
            }
            if (calm_passes_ >= kCalmPasses) {
                is_trial_ = false;
                rest_ns_ = width_ == all_ ? kShortestRestNs : rest_ns_;
            }
        }
        if (width_ < all_) {
            left_ns_ -= pass_ns;
            if (left_ns_ <= 0) {
                width_ = std::min(2 * width_, all_);
                left_ns_ = rest_ns_;
                calm_passes_ = 0;
                slowness_ = 0;
                is_trial_ = true;
            }
        }
    }

private:
    static constexpr int kCalmPasses = 16;

    std::size_t all_;
    std::size_t width_;
    std::int64_t rest_ns_ = kShortestRestNs;  ///< how long the next rest is
    std::int64_t left_ns_ = 0;                ///< of this rest
    int slowness_ = 0;
    int calm_passes_ = 0;
    bool is_trial_ = false;  ///< the width was raised and has not proved itself
};

}  // namespace perceptd::engine

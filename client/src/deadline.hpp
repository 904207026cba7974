// What is left of a wait. Owns its beginning. Never runs out when the limit is negative.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace percept {

class Deadline {
public:
    explicit Deadline(int timeout_ms) : timeout_ms_(timeout_ms), start_(std::chrono::steady_clock::now()) {}
    [[nodiscard]] int left_ms() const {
        if (timeout_ms_ < 0) {
            return -1;
        }
        const auto spent = std::chrono::steady_clock::now() - start_;
        const auto spent_ms = std::chrono::duration_cast<std::chrono::milliseconds>(spent).count();
        return static_cast<int>(std::max<std::int64_t>(0, timeout_ms_ - spent_ms));
    }

private:
    int timeout_ms_;
    std::chrono::steady_clock::time_point start_;
};

}  // namespace percept

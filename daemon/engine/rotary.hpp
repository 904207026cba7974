// Rotary position codes: cosines and sines of every position, computed once in double. Owns the table.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace perceptd::engine {

/// Read-only after construction; any thread.
class RotaryTable {
public:
    /// `dimension`: rotated elements of a head (even). angle = position * base^(-2i/dimension) / factors[i];
    /// `factors` empty: all 1. Throws Error (InvalidArgument) on an odd dimension, a base or factor not above 0.
    RotaryTable(std::size_t dimension, std::size_t position_count, double base, std::span<const float> factors = {},
                double position_scale = 1.0);

    [[nodiscard]] std::size_t dimension() const noexcept { return half_ * 2; }
    [[nodiscard]] std::size_t position_count() const noexcept { return positions_; }
    /// dimension/2 values; `position` below position_count().
    [[nodiscard]] const float* cosines(std::size_t position) const noexcept { return &table_[position * half_ * 2]; }
    [[nodiscard]] const float* sines(std::size_t position) const noexcept { return cosines(position) + half_; }

private:
    std::size_t half_;
    std::size_t positions_;
    std::vector<float> table_;
};

}  // namespace perceptd::engine

// Bytes that operations move between memory and the processor, by definition rather than by measurement: each weight
// matrix once per operation, KV once per pass and head, activations once per read and write of a whole tensor.
// One struct per worker, summed after the pass; the planner predicts the same numbers.
#pragma once

#include <cstdint>

namespace perceptd::engine {

struct TrafficCounter {
    std::uint64_t weight_bytes = 0;
    std::uint64_t activation_bytes = 0;
    std::uint64_t kv_read_bytes = 0;
    std::uint64_t kv_write_bytes = 0;
    std::uint64_t multiply_count = 0;  ///< multiply-accumulates of matrix products and attention

    constexpr TrafficCounter& operator+=(const TrafficCounter& other) noexcept {
        weight_bytes += other.weight_bytes;
        activation_bytes += other.activation_bytes;
        kv_read_bytes += other.kv_read_bytes;
        kv_write_bytes += other.kv_write_bytes;
        multiply_count += other.multiply_count;
        return *this;
    }
    [[nodiscard]] constexpr std::uint64_t bytes() const noexcept {
        return weight_bytes + activation_bytes + kv_read_bytes + kv_write_bytes;
    }
    friend constexpr bool operator==(const TrafficCounter&, const TrafficCounter&) noexcept = default;
};

}  // namespace perceptd::engine

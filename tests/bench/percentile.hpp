// Percentiles of durations for benchmarks, in microseconds. Owns nothing. Never interpolates: it gives a value
// measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace bench {

/// The value that `fraction` of `durations_ns` do not exceed; 0 when empty. Sorts its copy.
inline double percentile_us(std::vector<std::int64_t> durations_ns, double fraction) {
    if (durations_ns.empty()) {
        return 0;
    }
    std::sort(durations_ns.begin(), durations_ns.end());
    const auto last = static_cast<double>(durations_ns.size() - 1);
    return static_cast<double>(durations_ns[static_cast<std::size_t>(last * fraction + 0.5)]) / 1000.0;
}

/// Medians over batches, so that one disturbed batch does not speak for the run.
class BatchedPercentiles {
public:
    void add_batch(const std::vector<std::int64_t>& durations_ns) {
        p50_ns_.push_back(static_cast<std::int64_t>(percentile_us(durations_ns, 0.50) * 1000));
        p99_ns_.push_back(static_cast<std::int64_t>(percentile_us(durations_ns, 0.99) * 1000));
    }
    [[nodiscard]] double p50_us() const { return percentile_us(p50_ns_, 0.5); }
    [[nodiscard]] double p99_us() const { return percentile_us(p99_ns_, 0.5); }
    [[nodiscard]] nlohmann::json json() const { return {{"p50", p50_us()}, {"p99", p99_us()}}; }

private:
    std::vector<std::int64_t> p50_ns_;
    std::vector<std::int64_t> p99_ns_;
};

}  // namespace bench

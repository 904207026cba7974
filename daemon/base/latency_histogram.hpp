// A histogram of durations with fixed buckets: sixteen per octave, so a quantile is within 1/16 of the truth.
// Owns its counts.
// Never allocates, locks or forgets.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace perceptd {

/// Threads: record() from any, quantile_ns() from any; concurrent records may or may not be in a quantile.
/// Real-time: record() is one atomic addition.
class LatencyHistogram {
public:
    /// Negative durations count as 0, those above 2^40 ns (18 minutes) as that.
    void record(std::int64_t duration_ns) noexcept {
        counts_[bucket_of(duration_ns)].fetch_add(1, std::memory_order_relaxed);
    }

    [[nodiscard]] std::uint64_t count() const noexcept {
        std::uint64_t sum = 0;
        for (const auto& bucket : counts_) {
            sum += bucket.load(std::memory_order_relaxed);
        }
        return sum;
    }

    /// The upper edge of the bucket that holds the `q` quantile (0..1, nearest rank); 0 without records.
    [[nodiscard]] std::int64_t quantile_ns(double q) const noexcept {
        const std::uint64_t total = count();
        const auto rank = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(total)));
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < kBuckets; ++i) {
            seen += counts_[i].load(std::memory_order_relaxed);
            if (seen > 0 && seen >= rank) {
                return upper_edge_ns(i);
            }
        }
        return 0;
    }

private:
    static constexpr unsigned kSubBits = 4;
    static constexpr std::int64_t kLongestNs = std::int64_t{1} << 40;
    static constexpr std::size_t kBuckets = (40 - kSubBits + 2) << kSubBits;

    static constexpr std::size_t bucket_of(std::int64_t duration_ns) noexcept {
        const auto value = static_cast<std::uint64_t>(
            duration_ns < 0 ? 0 : (duration_ns >= kLongestNs ? kLongestNs - 1 : duration_ns));
        const auto width = static_cast<unsigned>(std::bit_width(value));
        if (width <= kSubBits) {
            return static_cast<std::size_t>(value);  // below sixteen every value has a bucket
        }
        const unsigned shift = width - kSubBits - 1;
        return (static_cast<std::size_t>(shift) << kSubBits) + static_cast<std::size_t>(value >> shift);
    }

    static constexpr std::int64_t upper_edge_ns(std::size_t bucket) noexcept {
        if (bucket < (std::size_t{2} << kSubBits)) {
            return static_cast<std::int64_t>(bucket);
        }
        const auto shift = static_cast<unsigned>((bucket >> kSubBits) - 1);
        const auto top = static_cast<std::int64_t>((bucket & ((std::size_t{1} << kSubBits) - 1)) + (1U << kSubBits));
        return ((top + 1) << shift) - 1;
    }

    std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
};

}  // namespace perceptd

// The map from one sensor's clock to the hub clock, estimated from stamp pairs (algorithms.md section 1).
// Owns the filter's state and the published map; one writer, any reader.
// Never maps one sensor to another, and never corrects a constant delay: that is calibration, not clock.
#pragma once

#include <array>
#include <cstdint>

#include "base/latched_cell.hpp"
#include "base/status.hpp"
#include "sensor/sample.hpp"

namespace perceptd::sync {

/// The published map: hub = d0_ns + ds + (ds * rate_q52 >> 52), ds = sensor - s0_ns.
struct ClockMap {
    std::uint32_t epoch = 0;  ///< 0 = no sample yet; each break of continuity adds one
    std::uint32_t stable = 0;
    std::int64_t s0_ns = 0;
    std::int64_t d0_ns = 0;
    std::int64_t rate_q52 = 0;   ///< (alpha - 1) * 2^52
    double var_ns2 = 0;          ///< of the map at s0_ns
    double drift_ppb_per_s = 0;  ///< D, the rate's change

    /// Hub time of `sensor_ns`; saturates instead of wrapping. Real-time safe.
    [[nodiscard]] std::int64_t to_hub(std::int64_t sensor_ns) const noexcept;
};

struct ClockOptions {
    sensor::StampKind kind = sensor::StampKind::Latched;
    /// Standard deviation of a stamp (OneWay: of a bucket's minimum). Adapted: the variance stays in x0.25..x16.
    double sigma_ns = 2'000;
    std::int64_t bucket_ns = 250'000'000;  ///< OneWay: span of one lower-envelope bucket
};

struct ClockCounters {
    std::uint64_t accepted = 0;    ///< filter updates
    std::uint64_t rejected = 0;    ///< outside the gate
    std::uint64_t duplicates = 0;  ///< sensor stamp equal to the last one
    std::uint64_t backward = 0;    ///< sensor stamp before the last one
    std::uint64_t invalid = 0;     ///< out of range
    std::uint64_t steps = 0;       ///< epochs after the first
};

/// Threads: add() and restart() from one thread; map() from any. Real-time: no allocation, no lock, no throw.
class ClockModel {
public:
    explicit ClockModel(const ClockOptions& options) noexcept;

    /// Takes one stamp pair. Ok; Duplicate or Invalid when it was counted and dropped (gate, order, range).
    Status add(std::int64_t sensor_ns, std::int64_t hub_ns) noexcept;
    /// The next sample opens a new epoch (suspend, stream restart).
    void restart() noexcept { restart_pending_ = true; }

    /// The newest published map.
    [[nodiscard]] ClockMap map() const noexcept { return cell_.load(); }
    /// Writer's thread: hub time by the newest map.
    [[nodiscard]] std::int64_t to_hub(std::int64_t sensor_ns) const noexcept { return current_.to_hub(sensor_ns); }
    [[nodiscard]] std::uint32_t epoch() const noexcept { return current_.epoch; }
    /// True once the rate is known to 10 ppm (Identity: from the first sample).
    [[nodiscard]] bool is_stable() const noexcept { return current_.stable != 0; }
    /// The sensor's rate against the hub: positive = hub time runs ahead.
    [[nodiscard]] double drift_ppm() const noexcept { return gamma_ppb_ * 1e-3; }
    [[nodiscard]] const ClockCounters& counters() const noexcept { return counters_; }

private:
    static constexpr std::size_t kHistory = 256;
    static constexpr int kStepRun = 5;

    void begin_epoch(std::int64_t sensor_ns, std::int64_t hub_ns, bool keep_rate) noexcept;
    Status add_one_way(std::int64_t sensor_ns, std::int64_t hub_ns) noexcept;
    Status update(std::int64_t sensor_ns, std::int64_t hub_ns) noexcept;
    void predict(std::int64_t sensor_ns) noexcept;
    void correct(double residual_ns, double variance_ns2) noexcept;
    void adapt(double residual_ns, double predicted_var_ns2) noexcept;
    bool note_reject(double residual_ns, double sigma_ns) noexcept;
    void publish() noexcept;

    ClockOptions options_;
    LatchedCell<ClockMap> cell_;
    ClockMap current_;
    ClockCounters counters_;

    // Reference point of the filter; the state is small around it: theta [ns], gamma [ns/s], D [ns/s^2].
    std::int64_t s_ref_ns_ = 0;
    std::int64_t d_ref_ns_ = 0;
    double theta_ns_ = 0;
    double gamma_ppb_ = 0;
    double drift_ppb_per_s_ = 0;
    std::array<std::array<double, 3>, 3> p_{};
    double r_ns2_ = 0;
    std::uint64_t updates_in_epoch_ = 0;
    std::int64_t last_sensor_ns_ = 0;
    std::int64_t last_backward_ns_ = 0;
    int backward_run_ = 0;
    bool started_ = false;
    bool restart_pending_ = false;

    std::array<double, kHistory> history_{};  // |innovation|, for the robust variance
    std::size_t history_count_ = 0;
    int reject_run_ = 0;
    double reject_mean_ns_ = 0;

    bool bucket_open_ = false;
    std::int64_t bucket_end_ns_ = 0;
    std::int64_t bucket_sensor_ns_ = 0;
    std::int64_t bucket_hub_ns_ = 0;
    double bucket_residual_ns_ = 0;
};

/// Keeps a stream's emitted times strictly increasing across epochs. Thread-bound.
class MonotonicStamp {
public:
    [[nodiscard]] std::int64_t next(std::int64_t mapped_ns) noexcept {
        previous_ns_ = mapped_ns > previous_ns_ ? mapped_ns : previous_ns_ + 1;
        return previous_ns_;
    }

private:
    std::int64_t previous_ns_ = INT64_MIN;
};

}  // namespace perceptd::sync

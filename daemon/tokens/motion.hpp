// Motion features on a 10 ms grid, and what the wearer does (still, walk, turn), from accelerometer and gyro rows.
// Owns the gravity filter, the last 4 s of vertical acceleration and the last row of each sensor.
// Never lets a non-finite or saturated reading into a feature: such readings are flagged, counted and left out.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "base/status.hpp"
#include "percept_layout.h"

namespace perceptd::tokens {

inline constexpr std::int64_t kMotionStepNs = 10'000'000;

enum class MotionState : std::uint32_t { Unknown = 0, Still = 1, Walk = 2, Turn = 3 };

struct MotionOptions {
    float accel_limit_mps2 = 156.0F;          ///< at or above: saturated (16 g part)
    float gyro_limit_radps = 34.8F;           ///< at or above: saturated (2000 deg/s part)
    std::int64_t gap_limit_ns = 100'000'000;  ///< no interpolation across more than this
    double gravity_time_s = 1.0;              ///< time constant of the gravity low-pass
    float still_energy_mps2 = 0.25F;          ///< below, and turning slowly: still
    float walk_energy_mps2 = 0.5F;            ///< above, and with a cadence: walk
    float still_rate_radps = 0.1F;
    float turn_rate_radps = 0.5F;  ///< mean rate about the vertical over the last second
};

/// What one window held beyond its features.
struct MotionSummary {
    Status status = Status::Ok;
    std::uint32_t feature_count = 0;
    MotionState state = MotionState::Unknown;
    float cadence_hz = std::numeric_limits<float>::quiet_NaN();  ///< steps per second; NaN = unknown
    std::array<float, 3> rotation_rad{};   ///< rotation vector of the window, sensor axes at its start
    std::int64_t rotation_covered_ns = 0;  ///< part of the window that the gyro covered
    std::uint32_t saturated_count = 0;     ///< own rows with a saturated reading
    std::uint32_t invalid_count = 0;       ///< own rows with a non-finite reading
};

/// Makes a row safe to publish: a sensor with a non-finite value is zeroed and loses its ACCEL/GYRO flag; a reading
/// at or beyond the limit gains SATURATED. Gives back true when a non-finite value was found.
bool sanitise(percept_imu_row& row, const MotionOptions& options = {}) noexcept;

/// Thread-bound.
class MotionExtractor {
public:
    explicit MotionExtractor(const MotionOptions& options = {}) noexcept : options_(options) {}

    /// Features at each multiple of 10 ms in [start_ns, end_ns), from `rows` in time order (own rows and
    /// NEIGHBOUR rows around them). A grid time without accelerometer readings on both sides within the gap limit
    /// has no feature; without gyro its rate is 0. Windows come in time order; Invalid for an empty or older window
    /// or unordered rows, Full when `out` is shorter than the grid; both leave the state unchanged.
    /// Real-time: no allocation; linear in rows plus about 40,000 multiply-adds for the cadence.
    MotionSummary extract(std::span<const percept_imu_row> rows, std::int64_t start_ns, std::int64_t end_ns,
                          std::span<percept_motion_feature> out) noexcept;

    /// Grid times in [start_ns, end_ns): the length `out` needs.
    static std::size_t feature_count_of(std::int64_t start_ns, std::int64_t end_ns) noexcept;

    /// Forgets everything (a new stream).
    void reset() noexcept;

private:
    using Vector = std::array<double, 3>;
    static constexpr std::uint32_t kHistory = 400;  // 4 s
    static constexpr std::uint32_t kSecond = 100;

    [[nodiscard]] bool usable(const percept_imu_row& row, std::uint32_t sensor) const noexcept;
    [[nodiscard]] bool interpolate(std::span<const percept_imu_row> rows, std::uint32_t sensor, std::int64_t time_ns,
                                   std::size_t& cursor, Vector& value) const noexcept;
    void filter(std::int64_t time_ns, const Vector& accel, const Vector& rate, percept_motion_feature& out) noexcept;
    void integrate(std::span<const percept_imu_row> rows, std::int64_t start_ns, std::int64_t end_ns,
                   MotionSummary& summary) const noexcept;
    [[nodiscard]] float cadence() const noexcept;
    [[nodiscard]] MotionState classify(float cadence_hz) const noexcept;
    [[nodiscard]] std::uint32_t back(std::uint32_t steps) const noexcept;

    MotionOptions options_;
    Vector gravity_{};
    std::array<float, kHistory> vertical_{};  // linear acceleration along gravity
    std::array<float, kSecond> linear_sq_{};
    std::array<float, kSecond> yaw_{};  // angular rate about gravity
    std::array<float, kSecond> rate_sq_{};
    std::uint64_t history_count_ = 0;  // since the last gap
    std::int64_t last_feature_ns_ = 0;
    std::int64_t last_end_ns_ = std::numeric_limits<std::int64_t>::min();
    float energy_mps2_ = 0;
};

}  // namespace perceptd::tokens

#include "tokens/motion.hpp"

#include <algorithm>
#include <cmath>

namespace perceptd::tokens {
namespace {

constexpr double kStepSeconds = 0.01;
constexpr std::uint32_t kLagMin = 28;   // 3.6 steps/s
constexpr std::uint32_t kLagMax = 125;  // 0.8 steps/s
constexpr double kPeakMin = 0.5;        // normalised autocorrelation of a believable gait
constexpr double kFirstPeakShare = 0.85;

bool finite(const float (&v)[3]) noexcept {
    return std::isfinite(v[0]) && std::isfinite(v[1]) && std::isfinite(v[2]);
}

bool beyond(const float (&v)[3], float limit) noexcept {
    return std::abs(v[0]) >= limit || std::abs(v[1]) >= limit || std::abs(v[2]) >= limit;
}

std::int64_t first_grid_ns(std::int64_t start_ns) noexcept {
    const std::int64_t past = ((start_ns % kMotionStepNs) + kMotionStepNs) % kMotionStepNs;
    return past == 0 ? start_ns : start_ns + (kMotionStepNs - past);
}

const float (&values_of(const percept_imu_row& row, std::uint32_t sensor) noexcept)[3] {
    return sensor == PERCEPT_IMU_ACCEL ? row.accel_mps2 : row.gyro_radps;
}

double norm_of(const std::array<double, 3>& v) noexcept {
    return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
}

}  // namespace

bool sanitise(percept_imu_row& row, const MotionOptions& options) noexcept {
    bool invalid = false;
    const auto check = [&](float(&values)[3], std::uint32_t flag, float limit) {
        if ((row.flags & flag) == 0 || !finite(values)) {
            invalid = invalid || (row.flags & flag) != 0;
            row.flags &= ~flag;
            std::fill(std::begin(values), std::end(values), 0.0F);
        } else if (beyond(values, limit)) {
            row.flags |= PERCEPT_IMU_SATURATED;
        }
    };
    check(row.accel_mps2, PERCEPT_IMU_ACCEL, options.accel_limit_mps2);
    check(row.gyro_radps, PERCEPT_IMU_GYRO, options.gyro_limit_radps);
    return invalid;
}

// A provider's SATURATED flag does not say which sensor: then both are left out, unless the values tell.
bool MotionExtractor::usable(const percept_imu_row& row, std::uint32_t sensor) const noexcept {
    if ((row.flags & sensor) == 0 || !finite(values_of(row, sensor))) {
        return false;
    }
    const bool accel_beyond = (row.flags & PERCEPT_IMU_ACCEL) != 0 && beyond(row.accel_mps2, options_.accel_limit_mps2);
    const bool gyro_beyond = (row.flags & PERCEPT_IMU_GYRO) != 0 && beyond(row.gyro_radps, options_.gyro_limit_radps);
    if (accel_beyond || gyro_beyond) {
        return sensor == PERCEPT_IMU_ACCEL ? !accel_beyond : !gyro_beyond;
    }
    return (row.flags & PERCEPT_IMU_SATURATED) == 0;
}

// `cursor` is the last usable row at or before the previous time asked for; it only moves forward.
bool MotionExtractor::interpolate(std::span<const percept_imu_row> rows, std::uint32_t sensor, std::int64_t time_ns,
                                  std::size_t& cursor, Vector& value) const noexcept {
    std::size_t after = cursor;
    while (after < rows.size() && (rows[after].time_ns <= time_ns || !usable(rows[after], sensor))) {
        if (usable(rows[after], sensor)) {
            cursor = after;
        }
        ++after;
    }
    if (cursor >= rows.size() || !usable(rows[cursor], sensor) || rows[cursor].time_ns > time_ns) {
        return false;
    }
    const percept_imu_row& left = rows[cursor];
    double share = 0;
    const percept_imu_row* right = &left;
    if (left.time_ns != time_ns) {
        if (after == rows.size() || rows[after].time_ns - left.time_ns > options_.gap_limit_ns) {
            return false;
        }
        right = &rows[after];
        share = static_cast<double>(time_ns - left.time_ns) / static_cast<double>(right->time_ns - left.time_ns);
    }
    for (std::size_t axis = 0; axis < 3; ++axis) {
        const double a = values_of(left, sensor)[axis];
        value[axis] = a + share * (values_of(*right, sensor)[axis] - a);
    }
    return true;
}

std::size_t MotionExtractor::feature_count_of(std::int64_t start_ns, std::int64_t end_ns) noexcept {
    const std::int64_t first = first_grid_ns(start_ns);
    return first >= end_ns ? 0 : static_cast<std::size_t>((end_ns - 1 - first) / kMotionStepNs + 1);
}

void MotionExtractor::reset() noexcept {
    *this = MotionExtractor(options_);
}

std::uint32_t MotionExtractor::back(std::uint32_t steps) const noexcept {
    return static_cast<std::uint32_t>((history_count_ - 1 - steps) % kHistory);
}

void MotionExtractor::filter(std::int64_t time_ns, const Vector& accel, const Vector& rate,
                             percept_motion_feature& out) noexcept {
    if (history_count_ == 0 || time_ns - last_feature_ns_ > options_.gap_limit_ns) {
        history_count_ = 0;  // a gap: gravity starts from this reading and no gait spans it
        gravity_ = accel;
    }
    const auto missed = history_count_ == 0 ? 0.0 : static_cast<double>(time_ns - last_feature_ns_) * 1e-9;
    const double share = missed / (options_.gravity_time_s + missed);
    Vector linear{};
    double along = 0;
    double yaw = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) {
        gravity_[axis] += share * (accel[axis] - gravity_[axis]);
        linear[axis] = accel[axis] - gravity_[axis];
        along += linear[axis] * gravity_[axis];
        yaw += rate[axis] * gravity_[axis];
        out.gravity_mps2[axis] = static_cast<float>(gravity_[axis]);
        out.linear_mps2[axis] = static_cast<float>(linear[axis]);
        out.angular_rate_radps[axis] = static_cast<float>(rate[axis]);
    }
    const double length = std::max(norm_of(gravity_), 1e-6);
    const std::size_t slot = history_count_ % kSecond;
    const double linear_norm = norm_of(linear);
    const double rate_norm = norm_of(rate);
    vertical_[history_count_ % kHistory] = static_cast<float>(along / length);
    linear_sq_[slot] = static_cast<float>(linear_norm * linear_norm);
    rate_sq_[slot] = static_cast<float>(rate_norm * rate_norm);
    yaw_[slot] = static_cast<float>(yaw / length);
    ++history_count_;
    last_feature_ns_ = time_ns;
    const auto held = static_cast<std::uint32_t>(std::min<std::uint64_t>(history_count_, kSecond));
    double sum = 0;
    for (std::uint32_t i = 0; i < held; ++i) {
        sum += linear_sq_[i];
    }
    energy_mps2_ = static_cast<float>(std::sqrt(sum / held));
    out.energy_mps2 = energy_mps2_;
    out.time_ns = time_ns;
}

// Product of small rotations, each with the rate at the middle of its interval (exact for linear rates about one axis).
void MotionExtractor::integrate(std::span<const percept_imu_row> rows, std::int64_t start_ns, std::int64_t end_ns,
                                MotionSummary& summary) const noexcept {
    double w = 1;
    Vector v{};
    const percept_imu_row* left = nullptr;
    for (const percept_imu_row& row : rows) {
        if (!usable(row, PERCEPT_IMU_GYRO)) {
            continue;
        }
        const percept_imu_row* before = left;
        left = &row;
        if (before == nullptr || row.time_ns - before->time_ns > options_.gap_limit_ns) {
            continue;
        }
        const std::int64_t from = std::max(before->time_ns, start_ns);
        const std::int64_t to = std::min(row.time_ns, end_ns);
        if (from >= to) {
            continue;
        }
        const double span = static_cast<double>(row.time_ns - before->time_ns);
        const double share = 0.5 * static_cast<double>((from - before->time_ns) + (to - before->time_ns)) / span;
        const double seconds = static_cast<double>(to - from) * 1e-9;
        Vector half{};
        for (std::size_t axis = 0; axis < 3; ++axis) {
            const double a = before->gyro_radps[axis];
            half[axis] = 0.5 * seconds * (a + share * (row.gyro_radps[axis] - a));
        }
        const double angle = norm_of(half);
        const double scale = angle < 1e-9 ? 1.0 : std::sin(angle) / angle;
        const double c = std::cos(angle);
        const Vector u{half[0] * scale, half[1] * scale, half[2] * scale};
        const double next_w = w * c - v[0] * u[0] - v[1] * u[1] - v[2] * u[2];
        v = {w * u[0] + c * v[0] + v[1] * u[2] - v[2] * u[1], w * u[1] + c * v[1] + v[2] * u[0] - v[0] * u[2],
             w * u[2] + c * v[2] + v[0] * u[1] - v[1] * u[0]};
        w = next_w;
        summary.rotation_covered_ns += to - from;
    }
    if (w < 0) {  // the shorter way round
        w = -w;
        v = {-v[0], -v[1], -v[2]};
    }
    const double sine = norm_of(v);
    const double scale = sine < 1e-12 ? 2.0 : 2.0 * std::atan2(sine, w) / sine;
    for (std::size_t axis = 0; axis < 3; ++axis) {
        summary.rotation_rad[axis] = static_cast<float>(scale * v[axis]);
    }
}

float MotionExtractor::cadence() const noexcept {
    constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
    const auto held = static_cast<std::uint32_t>(std::min<std::uint64_t>(history_count_, kHistory));
    if (held < 2 * kLagMax || energy_mps2_ < options_.walk_energy_mps2) {
        return kUnknown;
    }
    std::array<float, kHistory> x{};
    double mean = 0;
    for (std::uint32_t i = 0; i < held; ++i) {
        x[i] = vertical_[back(held - 1 - i)];
        mean += x[i];
    }
    mean /= held;
    for (std::uint32_t i = 0; i < held; ++i) {
        x[i] -= static_cast<float>(mean);
    }
    std::array<double, kLagMax + 2> r{};
    double best = 0;
    for (std::uint32_t lag = kLagMin - 1; lag <= kLagMax + 1; ++lag) {
        double product = 0;
        double early = 0;
        double late = 0;
        for (std::uint32_t i = 0; i + lag < held; ++i) {
            product += x[i] * x[i + lag];
            early += x[i] * x[i];
            late += x[i + lag] * x[i + lag];
        }
        r[lag] = product / std::max(std::sqrt(early * late), 1e-12);
    }
    const auto is_peak = [&r](std::uint32_t lag) { return r[lag] >= r[lag - 1] && r[lag] > r[lag + 1]; };
    for (std::uint32_t lag = kLagMin; lag <= kLagMax; ++lag) {
        best = is_peak(lag) ? std::max(best, r[lag]) : best;
    }
    if (best < kPeakMin) {
        return kUnknown;
    }
    for (std::uint32_t lag = kLagMin; lag <= kLagMax; ++lag) {
        // The first strong peak is the step; later ones are its multiples.
        if (is_peak(lag) && r[lag] >= kFirstPeakShare * best) {
            const double curve = r[lag - 1] - 2 * r[lag] + r[lag + 1];
            const double shift = curve < 0 ? 0.5 * (r[lag - 1] - r[lag + 1]) / curve : 0;
            return static_cast<float>(1.0 / ((lag + shift) * kStepSeconds));
        }
    }
    return kUnknown;
}

MotionState MotionExtractor::classify(float cadence_hz) const noexcept {
    if (history_count_ < kSecond / 2) {
        return MotionState::Unknown;
    }
    const auto held = static_cast<std::uint32_t>(std::min<std::uint64_t>(history_count_, kSecond));
    double yaw = 0;
    double rate_sq = 0;
    for (std::uint32_t i = 0; i < held; ++i) {
        yaw += yaw_[i];
        rate_sq += rate_sq_[i];
    }
    if (std::abs(yaw / held) >= options_.turn_rate_radps) {
        return MotionState::Turn;
    }
    if (std::isfinite(cadence_hz)) {
        return MotionState::Walk;
    }
    const bool still =
        energy_mps2_ < options_.still_energy_mps2 && std::sqrt(rate_sq / held) < options_.still_rate_radps;
    return still ? MotionState::Still : MotionState::Unknown;
}

MotionSummary MotionExtractor::extract(std::span<const percept_imu_row> rows, std::int64_t start_ns,
                                       std::int64_t end_ns, std::span<percept_motion_feature> out) noexcept {
    MotionSummary summary;
    const auto earlier = [](const percept_imu_row& a, const percept_imu_row& b) { return a.time_ns < b.time_ns; };
    if (end_ns <= start_ns || start_ns < last_end_ns_ || !std::is_sorted(rows.begin(), rows.end(), earlier)) {
        summary.status = Status::Invalid;
        return summary;
    }
    if (out.size() < feature_count_of(start_ns, end_ns)) {
        summary.status = Status::Full;
        return summary;
    }
    for (const percept_imu_row& row : rows) {
        if ((row.flags & PERCEPT_IMU_NEIGHBOUR) == 0) {
            percept_imu_row copy = row;
            summary.invalid_count += sanitise(copy, options_) ? 1u : 0u;
            summary.saturated_count += (copy.flags & PERCEPT_IMU_SATURATED) != 0 ? 1u : 0u;
        }
    }
    std::size_t accel_cursor = 0;
    std::size_t gyro_cursor = 0;
    for (std::int64_t time_ns = first_grid_ns(start_ns); time_ns < end_ns; time_ns += kMotionStepNs) {
        Vector accel{};
        Vector rate{};
        if (!interpolate(rows, PERCEPT_IMU_ACCEL, time_ns, accel_cursor, accel)) {
            continue;
        }
        if (!interpolate(rows, PERCEPT_IMU_GYRO, time_ns, gyro_cursor, rate)) {
            rate = {};
        }
        filter(time_ns, accel, rate, out[summary.feature_count++]);
    }
    last_end_ns_ = end_ns;
    integrate(rows, start_ns, end_ns, summary);
    if (summary.feature_count > 0) {
        summary.cadence_hz = cadence();
        summary.state = classify(summary.cadence_hz);
    }
    return summary;
}

}  // namespace perceptd::tokens

#include "sync/clock_model.hpp"

#include <algorithm>
#include <cmath>

namespace perceptd::sync {

namespace {

// Process noise in ns units: white FM 1e-18 s, random-walk FM 1e-20 1/s, random-walk drift 3e-17 1/s^3.
constexpr double kQ1 = 1.0;
constexpr double kQ2 = 0.01;
constexpr double kQ3 = 30.0;

constexpr double kInitialRateVar = 2e5 * 2e5;  // 200 ppm
constexpr double kSteppedRateVar = 2e4 * 2e4;  // 20 ppm: a step of the offset seldom changes the rate
constexpr double kInitialDriftVar = 100.0 * 100.0;
constexpr double kGate = 3.3;
constexpr double kHuber = 1.5;
constexpr double kStableRateSd = 1e4;  // 10 ppm
constexpr std::uint64_t kStableUpdates = 8;
constexpr double kBigJump = 20.0;  // in sigmas: a one-way minimum this low is a step
constexpr std::int64_t kRange = std::int64_t{1} << 61;
constexpr std::int64_t kLongestGap_ns = 3'600'000'000'000;
constexpr std::size_t kHistoryBeforeUse = 16;
constexpr double kMadToSd = 1.4826;

bool in_range(std::int64_t value_ns) noexcept {
    return value_ns > -kRange && value_ns < kRange;
}

}  // namespace

std::int64_t ClockMap::to_hub(std::int64_t sensor_ns) const noexcept {
    const __int128 ds = static_cast<__int128>(sensor_ns) - s0_ns;
    // |ds| < 2^64 and |rate| <= 2^46 by publish(): the product fits.
    const __int128 hub = static_cast<__int128>(d0_ns) + ds + ((ds * rate_q52) >> 52);
    if (hub > INT64_MAX) {
        return INT64_MAX;
    }
    return hub < INT64_MIN ? INT64_MIN : static_cast<std::int64_t>(hub);
}

ClockModel::ClockModel(const ClockOptions& options) noexcept : options_(options) {
    options_.sigma_ns = std::max(options_.sigma_ns, 1.0);
    options_.bucket_ns = std::max<std::int64_t>(options_.bucket_ns, 1);
}

Status ClockModel::add(std::int64_t sensor_ns, std::int64_t hub_ns) noexcept {
    if (!in_range(sensor_ns) || !in_range(hub_ns)) {
        ++counters_.invalid;
        return Status::Invalid;
    }
    if (!started_ || restart_pending_) {
        begin_epoch(sensor_ns, hub_ns, started_);
        return Status::Ok;
    }
    if (sensor_ns == last_sensor_ns_) {
        ++counters_.duplicates;
        return Status::Duplicate;
    }
    if (sensor_ns < last_sensor_ns_) {
        ++counters_.backward;
        // A counter that restarted lower keeps increasing from there; a stray stamp does not.
        backward_run_ = backward_run_ > 0 && sensor_ns > last_backward_ns_ ? backward_run_ + 1 : 1;
        last_backward_ns_ = sensor_ns;
        if (backward_run_ < kStepRun) {
            return Status::Invalid;
        }
        begin_epoch(sensor_ns, hub_ns, true);
        return Status::Ok;
    }
    backward_run_ = 0;
    if (options_.kind == sensor::StampKind::Identity) {
        last_sensor_ns_ = sensor_ns;
        ++counters_.accepted;
        return Status::Ok;
    }
    if (sensor_ns - last_sensor_ns_ > kLongestGap_ns) {
        begin_epoch(sensor_ns, hub_ns, true);
        return Status::Ok;
    }
    last_sensor_ns_ = sensor_ns;
    return options_.kind == sensor::StampKind::OneWay ? add_one_way(sensor_ns, hub_ns) : update(sensor_ns, hub_ns);
}

void ClockModel::begin_epoch(std::int64_t sensor_ns, std::int64_t hub_ns, bool keep_rate) noexcept {
    if (started_) {
        ++counters_.steps;
    }
    started_ = true;
    restart_pending_ = false;
    last_sensor_ns_ = sensor_ns;
    s_ref_ns_ = sensor_ns;
    d_ref_ns_ = hub_ns;
    theta_ns_ = 0;
    if (!keep_rate) {
        gamma_ppb_ = 0;
        drift_ppb_per_s_ = 0;
        r_ns2_ = 4 * options_.sigma_ns * options_.sigma_ns;
        history_count_ = 0;
    }
    // The first one-way stamp may carry a long delay: leave room for the next minima.
    const double offset_var = options_.kind == sensor::StampKind::OneWay ? 1e4 * r_ns2_ : r_ns2_;
    p_ = {};
    p_[0][0] = options_.kind == sensor::StampKind::Identity ? 0 : offset_var;
    p_[1][1] = keep_rate ? std::clamp(p_[1][1], kSteppedRateVar, kInitialRateVar) : kInitialRateVar;
    p_[2][2] = kInitialDriftVar;
    updates_in_epoch_ = 0;
    reject_run_ = 0;
    backward_run_ = 0;
    bucket_open_ = false;
    ++current_.epoch;
    ++counters_.accepted;
    publish();
}

Status ClockModel::add_one_way(std::int64_t sensor_ns, std::int64_t hub_ns) noexcept {
    Status status = Status::Ok;
    if (bucket_open_ && sensor_ns >= bucket_end_ns_) {
        bucket_open_ = false;
        status = update(bucket_sensor_ns_, bucket_hub_ns_);
    }
    const std::int64_t ds_ns = sensor_ns - s_ref_ns_;
    const double dt_s = static_cast<double>(ds_ns) * 1e-9;
    const double residual_ns = static_cast<double>(hub_ns - d_ref_ns_ - ds_ns) - theta_ns_ - gamma_ppb_ * dt_s -
                               0.5 * drift_ppb_per_s_ * dt_s * dt_s;
    if (!bucket_open_) {
        bucket_open_ = true;
        bucket_end_ns_ = sensor_ns + options_.bucket_ns;
    } else if (residual_ns >= bucket_residual_ns_) {
        return status;
    }
    bucket_sensor_ns_ = sensor_ns;
    bucket_hub_ns_ = hub_ns;
    bucket_residual_ns_ = residual_ns;
    return status;
}

void ClockModel::predict(std::int64_t sensor_ns) noexcept {
    const std::int64_t ds_ns = sensor_ns - s_ref_ns_;
    const double t = static_cast<double>(ds_ns) * 1e-9;
    s_ref_ns_ = sensor_ns;
    d_ref_ns_ += ds_ns;
    theta_ns_ += gamma_ppb_ * t + 0.5 * drift_ppb_per_s_ * t * t;
    gamma_ppb_ += drift_ppb_per_s_ * t;
    // Keep theta below one nanosecond's rounding: the integer part moves into the reference.
    const auto whole_ns = std::llround(theta_ns_);
    d_ref_ns_ += whole_ns;
    theta_ns_ -= static_cast<double>(whole_ns);

    const std::array<std::array<double, 3>, 3> f{{{1, t, 0.5 * t * t}, {0, 1, t}, {0, 0, 1}}};
    std::array<std::array<double, 3>, 3> fp{};
    std::array<std::array<double, 3>, 3> next{};
    for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < 3; ++j) {
            for (std::size_t k = i; k < 3; ++k) {
                fp[i][j] += f[i][k] * p_[k][j];
            }
        }
    }
    for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < 3; ++j) {
            for (std::size_t k = j; k < 3; ++k) {
                next[i][j] += fp[i][k] * f[j][k];
            }
        }
    }
    const double t2 = t * t;
    const double t3 = t2 * t;
    next[0][0] += kQ1 * t + kQ2 * t3 / 3 + kQ3 * t3 * t2 / 20;
    next[0][1] += kQ2 * t2 / 2 + kQ3 * t2 * t2 / 8;
    next[0][2] += kQ3 * t3 / 6;
    next[1][1] += kQ2 * t + kQ3 * t3 / 3;
    next[1][2] += kQ3 * t2 / 2;
    next[2][2] += kQ3 * t;
    next[1][0] = next[0][1];
    next[2][0] = next[0][2];
    next[2][1] = next[1][2];
    p_ = next;
}

void ClockModel::correct(double residual_ns, double variance_ns2) noexcept {
    const double s = p_[0][0] + variance_ns2;
    const std::array<double, 3> k{p_[0][0] / s, p_[1][0] / s, p_[2][0] / s};
    theta_ns_ += k[0] * residual_ns;
    gamma_ppb_ += k[1] * residual_ns;
    drift_ppb_per_s_ += k[2] * residual_ns;
    // Joseph form, H = [1,0,0]: (I-KH) P (I-KH)' + K R K'. It stays positive whatever the rounding.
    std::array<std::array<double, 3>, 3> next{};
    for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = i; j < 3; ++j) {
            next[i][j] = p_[i][j] - k[i] * p_[0][j] - k[j] * p_[i][0] + k[i] * k[j] * (p_[0][0] + variance_ns2);
            next[j][i] = next[i][j];
        }
    }
    p_ = next;
}

void ClockModel::adapt(double residual_ns, double predicted_var_ns2) noexcept {
    history_[history_count_++ % kHistory] = std::abs(residual_ns);
    if (history_count_ < kHistoryBeforeUse || history_count_ % 8 != 0) {
        return;
    }
    // The median bears the outliers that a windowed mean square would swallow.
    std::array<double, kHistory> sorted = history_;
    const std::size_t count = std::min(history_count_, kHistory);
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count));
    const double sd_ns = kMadToSd * *middle;
    const double nominal_ns2 = options_.sigma_ns * options_.sigma_ns;
    r_ns2_ = std::clamp(sd_ns * sd_ns - predicted_var_ns2, 0.25 * nominal_ns2, 16 * nominal_ns2);
}

bool ClockModel::note_reject(double residual_ns, double sigma_ns) noexcept {
    ++counters_.rejected;
    const double count = reject_run_;
    if (reject_run_ > 0 && std::abs(residual_ns - reject_mean_ns_) <= 3 * sigma_ns * std::sqrt(1 + 1 / count)) {
        reject_mean_ns_ += (residual_ns - reject_mean_ns_) / (count + 1);
        ++reject_run_;
    } else {
        reject_run_ = 1;
        reject_mean_ns_ = residual_ns;
    }
    return reject_run_ >= kStepRun;
}

Status ClockModel::update(std::int64_t sensor_ns, std::int64_t hub_ns) noexcept {
    predict(sensor_ns);
    const double residual_ns = static_cast<double>(hub_ns - d_ref_ns_) - theta_ns_;
    const double predicted_var_ns2 = p_[0][0];
    const double sd_ns = std::sqrt(predicted_var_ns2 + r_ns2_);
    const bool one_way = options_.kind == sensor::StampKind::OneWay;
    double variance_ns2 = r_ns2_;

    if (one_way && residual_ns < -kGate * sd_ns && updates_in_epoch_ > 0) {
        // A lower delay than any before is true: the offset follows it, the rate learns nothing from it.
        if (residual_ns < -kBigJump * sd_ns) {
            begin_epoch(sensor_ns, hub_ns, true);
            p_[0][0] = r_ns2_;
            return Status::Ok;
        }
        p_[0][0] += residual_ns * residual_ns;
        p_[0][1] = p_[1][0] = 0;
        p_[0][2] = p_[2][0] = 0;
    } else if (std::abs(residual_ns) > kGate * sd_ns) {
        if (note_reject(residual_ns, std::sqrt(r_ns2_))) {
            const auto agreed_ns = d_ref_ns_ + std::llround(theta_ns_ + reject_mean_ns_);
            begin_epoch(sensor_ns, agreed_ns, true);
            p_[0][0] = r_ns2_ / (one_way ? 1 : kStepRun);
            return Status::Ok;
        }
        adapt(residual_ns, predicted_var_ns2);
        return Status::Invalid;
    } else if (one_way && residual_ns > kHuber * sd_ns) {
        variance_ns2 *= residual_ns / (kHuber * sd_ns);
    }
    reject_run_ = 0;
    adapt(residual_ns, predicted_var_ns2);
    correct(residual_ns, variance_ns2);
    ++updates_in_epoch_;
    ++counters_.accepted;
    publish();
    return Status::Ok;
}

void ClockModel::publish() noexcept {
    constexpr double kTwo52 = 4503599627370496.0;
    constexpr double kLargestRate_ppb = 1e7;  // 1 %
    const auto whole_ns = std::llround(theta_ns_);
    current_.s0_ns = s_ref_ns_;
    current_.d0_ns = d_ref_ns_ + whole_ns;
    const double rate_ppb = std::clamp(gamma_ppb_, -kLargestRate_ppb, kLargestRate_ppb);
    current_.rate_q52 = std::llround(rate_ppb * 1e-9 * kTwo52);
    current_.var_ns2 = p_[0][0];
    current_.drift_ppb_per_s = drift_ppb_per_s_;
    const bool known = updates_in_epoch_ >= kStableUpdates && p_[1][1] <= kStableRateSd * kStableRateSd;
    current_.stable = options_.kind == sensor::StampKind::Identity || known ? 1 : 0;
    cell_.store(current_);
}

}  // namespace perceptd::sync

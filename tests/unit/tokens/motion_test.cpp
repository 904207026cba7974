#include "tokens/motion.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

using namespace perceptd;
using namespace perceptd::tokens;

namespace {

constexpr double kG = 9.80665;
constexpr std::int64_t kWindowNs = 250'000'000;
constexpr std::int64_t kPeriodNs = 4'807'692;  // 208 Hz, not a divisor of the grid
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Model = std::function<void(double seconds, percept_imu_row& row)>;

// Rows of [start - 20 ms, end + 20 ms): the ones outside are neighbours.
std::vector<percept_imu_row> rows_of(std::int64_t start_ns, std::int64_t end_ns, const Model& model) {
    std::vector<percept_imu_row> rows;
    for (std::int64_t i = std::max<std::int64_t>(0, (start_ns - 20'000'000) / kPeriodNs);
         i * kPeriodNs < end_ns + 20'000'000; ++i) {
        percept_imu_row row{};
        row.time_ns = i * kPeriodNs;
        row.row_index = static_cast<std::uint64_t>(i);
        row.accel_mps2[2] = static_cast<float>(kG);
        row.flags = PERCEPT_IMU_ACCEL | PERCEPT_IMU_GYRO;
        if (row.time_ns < start_ns || row.time_ns >= end_ns) {
            row.flags |= PERCEPT_IMU_NEIGHBOUR;
        }
        model(double(row.time_ns) * 1e-9, row);
        rows.push_back(row);
    }
    return rows;
}

MotionSummary run(MotionExtractor& motion, int windows, const Model& model,
                  std::vector<percept_motion_feature>* all = nullptr) {
    MotionSummary last;
    std::vector<percept_motion_feature> out(25);
    for (int w = 0; w < windows; ++w) {
        const auto rows = rows_of(w * kWindowNs, (w + 1) * kWindowNs, model);
        last = motion.extract(rows, w * kWindowNs, (w + 1) * kWindowNs, out);
        REQUIRE(last.status == Status::Ok);
        if (all != nullptr) {
            all->insert(all->end(), out.begin(), out.begin() + last.feature_count);
        }
    }
    return last;
}

bool all_finite(const percept_motion_feature& f) {
    bool good = std::isfinite(f.energy_mps2);
    for (int a = 0; a < 3; ++a) {
        good = good && std::isfinite(f.gravity_mps2[a]) && std::isfinite(f.linear_mps2[a]) &&
               std::isfinite(f.angular_rate_radps[a]);
    }
    return good;
}

}  // namespace

TEST_CASE("a 1.67 Hz walk: cadence and state") {
    std::mt19937 random(3);
    std::normal_distribution<float> noise(0.0F, 0.3F);
    const double hz = GENERATE(1.67, 1.2, 2.4);
    MotionExtractor motion;
    const auto summary = run(motion, 24, [&](double t, percept_imu_row& row) {
        const double phase = 2 * std::numbers::pi * hz * t;
        row.accel_mps2[2] +=
            static_cast<float>(2.0 * std::sin(phase) + 0.8 * std::sin(2 * phase + 0.5)) + noise(random);
        row.accel_mps2[0] += static_cast<float>(1.0 * std::sin(phase / 2)) + noise(random);  // sway, once per stride
        row.gyro_radps[1] += static_cast<float>(0.2 * std::sin(phase));
    });
    CHECK(summary.cadence_hz == Approx(hz).margin(0.03));
    CHECK(summary.state == MotionState::Walk);
}

TEST_CASE("lying still: gravity, no cadence, state still") {
    MotionExtractor motion;
    std::vector<percept_motion_feature> features;
    std::mt19937 random(4);
    std::normal_distribution<float> noise(0.0F, 0.02F);
    const auto summary = run(
        motion, 20,
        [&](double, percept_imu_row& row) {
            row.accel_mps2[0] += noise(random);
            row.gyro_radps[2] += noise(random) * 0.1F;
        },
        &features);
    CHECK(std::isnan(summary.cadence_hz));
    CHECK(summary.state == MotionState::Still);
    REQUIRE(features.size() == 500);
    for (std::size_t i = 0; i < features.size(); ++i) {
        REQUIRE(features[i].time_ns == std::int64_t(i) * kMotionStepNs);  // no grid time lost between windows
        REQUIRE(features[i].gravity_mps2[2] == Approx(kG).margin(0.01));
    }
    CHECK(features.back().energy_mps2 < 0.05F);
}

TEST_CASE("energy is the RMS of the linear part over the last second") {
    MotionExtractor motion;
    std::vector<percept_motion_feature> features;
    run(
        motion, 12,
        [](double t, percept_imu_row& row) { row.accel_mps2[1] += float(3 * std::sin(2 * std::numbers::pi * 5 * t)); },
        &features);
    for (std::size_t i = 99; i < features.size(); i += 50) {
        double sum = 0;
        for (std::size_t k = i - 99; k <= i; ++k) {
            for (const float v : features[k].linear_mps2) {
                sum += double(v) * v;
            }
        }
        CHECK(features[i].energy_mps2 == Approx(std::sqrt(sum / 100)).epsilon(1e-5));
    }
    CHECK(features.back().energy_mps2 == Approx(3 / std::sqrt(2.0)).epsilon(0.05));
}

TEST_CASE("rotation vector and turn") {
    MotionExtractor motion;
    const auto turning = run(motion, 8, [](double, percept_imu_row& row) { row.gyro_radps[2] = 1.2F; });
    CHECK(turning.state == MotionState::Turn);
    CHECK(turning.rotation_covered_ns == kWindowNs);
    CHECK(turning.rotation_rad[2] == Approx(1.2 * 0.25).epsilon(1e-5));
    CHECK(turning.rotation_rad[0] == Approx(0).margin(1e-6));

    // Coning: body rate (a cos wt, a sin wt, 0). In the frame that turns with it the rate is constant, so
    // R(T) has a closed form.
    const double a = 2.0;
    const double w = 6.0;
    MotionExtractor coning;
    std::vector<percept_motion_feature> out(25);
    const auto rows = rows_of(0, kWindowNs, [&](double t, percept_imu_row& row) {
        row.gyro_radps[0] = static_cast<float>(a * std::cos(w * t));
        row.gyro_radps[1] = static_cast<float>(a * std::sin(w * t));
    });
    const auto result = coning.extract(rows, 0, kWindowNs, out);
    struct Quaternion {
        double w, x, y, z;
    };
    const auto exponent = [](double x, double y, double z) {
        const double n = std::sqrt(x * x + y * y + z * z);
        const double s = std::sin(n / 2) / n;
        return Quaternion{std::cos(n / 2), s * x, s * y, s * z};
    };
    const double T = 0.25;
    const auto multiply = [](Quaternion p, Quaternion q) {
        return Quaternion{p.w * q.w - p.x * q.x - p.y * q.y - p.z * q.z, p.w * q.x + q.w * p.x + p.y * q.z - p.z * q.y,
                          p.w * q.y + q.w * p.y + p.z * q.x - p.x * q.z, p.w * q.z + q.w * p.z + p.x * q.y - p.y * q.x};
    };
    // R = S Z^-1 with Z = exp(wt z): R' = R [body] gives S' = S (Z^-1 body Z + w z) = S (a x + w z).
    const Quaternion r = multiply(exponent(T * a, 0, T * w), exponent(0, 0, -T * w));
    const double sine = std::sqrt(r.x * r.x + r.y * r.y + r.z * r.z);
    const double scale = 2 * std::atan2(sine, r.w) / sine;
    CHECK(result.rotation_rad[0] == Approx(scale * r.x).margin(2e-4));
    CHECK(result.rotation_rad[1] == Approx(scale * r.y).margin(2e-4));
    CHECK(result.rotation_rad[2] == Approx(scale * r.z).margin(2e-4));
}

TEST_CASE("non-finite and saturated readings are counted and never reach a feature") {
    MotionExtractor motion;
    std::vector<percept_motion_feature> features;
    std::vector<percept_motion_feature> out(25);
    std::uint32_t invalid = 0;
    std::uint32_t saturated = 0;
    for (int w = 0; w < 20; ++w) {
        const auto rows = rows_of(w * kWindowNs, (w + 1) * kWindowNs, [](double, percept_imu_row& row) {
            switch (row.row_index % 11) {
                case 1: row.accel_mps2[1] = kNan; break;
                case 3: row.gyro_radps[0] = std::numeric_limits<float>::infinity(); break;
                case 5: row.accel_mps2[0] = 200.0F; break;
                case 7: row.gyro_radps[2] = -40.0F; break;
                case 9:
                    row.accel_mps2[0] = 30.0F;
                    row.flags |= PERCEPT_IMU_SATURATED;
                    break;
                default: break;
            }
        });
        const auto summary = motion.extract(rows, w * kWindowNs, (w + 1) * kWindowNs, out);
        REQUIRE(summary.feature_count == 25);
        for (const float r : summary.rotation_rad) {
            CHECK(r == Approx(0).margin(1e-7));
        }
        invalid += summary.invalid_count;
        saturated += summary.saturated_count;
        features.insert(features.end(), out.begin(), out.end());
    }
    for (const auto& f : features) {
        REQUIRE(all_finite(f));
        REQUIRE(f.energy_mps2 < 1e-3F);
        REQUIRE(f.gravity_mps2[2] == Approx(kG));
    }
    const double own_rows = 20 * 0.25 / (kPeriodNs * 1e-9);
    CHECK(invalid == Approx(own_rows * 2 / 11).margin(3));
    CHECK(saturated == Approx(own_rows * 3 / 11).margin(3));
}

TEST_CASE("a silent accelerometer gives no features instead of invented ones") {
    MotionExtractor motion;
    std::vector<percept_motion_feature> out(25);
    const auto rows = rows_of(0, kWindowNs, [](double, percept_imu_row& row) { row.accel_mps2[0] = kNan; });
    const auto summary = motion.extract(rows, 0, kWindowNs, out);
    CHECK(summary.status == Status::Ok);
    CHECK(summary.feature_count == 0);
    CHECK(summary.state == MotionState::Unknown);
    CHECK(std::isnan(summary.cadence_hz));
    CHECK(motion.extract({}, kWindowNs, 2 * kWindowNs, out).feature_count == 0);
}

TEST_CASE("motion refuses short spans, old windows and unordered rows") {
    MotionExtractor motion;
    std::vector<percept_motion_feature> out(25);
    const auto rows = rows_of(0, kWindowNs, [](double, percept_imu_row&) {});
    CHECK(MotionExtractor::feature_count_of(0, kWindowNs) == 25);
    CHECK(MotionExtractor::feature_count_of(1, 10'000'000) == 0);
    CHECK(MotionExtractor::feature_count_of(1, 10'000'001) == 1);
    CHECK(MotionExtractor::feature_count_of(-15'000'000, 1) == 2);
    CHECK(motion.extract(rows, 0, kWindowNs, std::span(out).first(24)).status == Status::Full);
    CHECK(motion.extract(rows, 0, 0, out).status == Status::Invalid);
    CHECK(motion.extract(rows, 0, kWindowNs, out).status == Status::Ok);
    CHECK(motion.extract(rows, 0, kWindowNs, out).status == Status::Invalid);
    auto reversed = rows_of(kWindowNs, 2 * kWindowNs, [](double, percept_imu_row&) {});
    std::swap(reversed.front(), reversed.back());
    CHECK(motion.extract(reversed, kWindowNs, 2 * kWindowNs, out).status == Status::Invalid);
}

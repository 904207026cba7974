// The scene against its own truth: what is seen, heard and felt must tell of the same head at the same instant.
#include "sensor/scene.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "sensor/counter_rng.hpp"

using namespace perceptd;
using namespace perceptd::sensor;

namespace {

constexpr std::uint32_t kWidthPx = 848;

std::vector<std::byte> frame_at(const Scene& scene, std::int64_t time_ns) {
    std::vector<std::byte> frame(scene.frame_bytes(kWidthPx));
    scene.render_frame(time_ns, kWidthPx, frame);
    return frame;
}

int luma(const std::vector<std::byte>& frame, int x, int y) {
    return std::to_integer<int>(frame[std::size_t(y) * kWidthPx + std::size_t(x)]);
}

/// The whole-pixel shift (x, y) that best carries `before` onto `after`.
std::pair<int, int> best_shift(const std::vector<std::byte>& before, const std::vector<std::byte>& after) {
    std::pair<int, int> best{};
    long best_cost = std::numeric_limits<long>::max();
    for (int dy = -6; dy <= 6; ++dy) {
        for (int dx = -30; dx <= 30; ++dx) {
            long cost = 0;
            for (int y = 60; y < 420; y += 12) {
                for (int x = 60; x < 780; x += 7) {
                    cost += std::abs(luma(before, x, y) - luma(after, x + dx, y + dy));
                }
            }
            if (cost < best_cost) {
                best_cost = cost;
                best = {dx, dy};
            }
        }
    }
    return best;
}

}  // namespace

TEST_CASE("counter RNG has the moments of its distributions", "[scene]") {
    double sum = 0, square = 0, mean_delay = 0;
    constexpr int kCount = 100'000;
    for (int i = 0; i < kCount; ++i) {
        const double value = random_normal(7, 3, static_cast<std::uint64_t>(i));
        sum += value;
        square += value * value;
        mean_delay += random_exponential(7, 4, static_cast<std::uint64_t>(i));
    }
    CHECK(std::abs(sum / kCount) < 0.02);
    CHECK(square / kCount == Approx(1.0).margin(0.03));
    CHECK(mean_delay / kCount == Approx(1.0).margin(0.02));
}

TEST_CASE("the same seed draws the same frame, another seed another", "[scene]") {
    const Scene first({.seed = 5}), again({.seed = 5}), other({.seed = 6});
    CHECK(frame_at(first, 777'000'000) == frame_at(again, 777'000'000));
    CHECK(frame_at(first, 777'000'000) != frame_at(other, 777'000'000));
    CHECK_THROWS_AS(Scene({.width_px = 847}), Error);
}

TEST_CASE("the picture moves as the head turns and bobs", "[scene]") {
    const Scene scene({.seed = 2});
    for (const std::int64_t start_ns : {0L, 450'000'000L, 1'900'000'000L, 7'300'000'000L}) {
        const std::int64_t end_ns = start_ns + 50'000'000;
        double yaw_rad = 0;  // integrated from the gyro, not read from the pose
        for (std::int64_t t = start_ns; t < end_ns; t += kNsPerMs) {
            yaw_rad += scene.imu_at(t + kNsPerMs / 2).gyro_radps[1] * 1e-3;
        }
        const double height_m = scene.head_at(end_ns).height_m - scene.head_at(start_ns).height_m;
        const auto [dx, dy] = best_shift(frame_at(scene, start_ns), frame_at(scene, end_ns));
        INFO("start " << start_ns);
        CHECK(std::abs(dx - yaw_rad * scene.focal_px()) < 0.75);  // a turn to the left moves the room to the right
        CHECK(std::abs(dy - height_m * scene.focal_px() / 3.0) < 0.75);
    }
}

TEST_CASE("a whole turn has no seam", "[scene]") {
    const Scene scene({.seed = 3});
    std::int64_t seam_ns = 0;  // the view crosses the panorama's edge
    while (scene.view_at(seam_ns + kNsPerMs).x_px < scene.view_at(seam_ns).x_px + 1000) {
        seam_ns += kNsPerMs;
    }
    const auto before = frame_at(scene, seam_ns);
    const auto after = frame_at(scene, seam_ns + kNsPerMs);
    int largest = 0;
    for (int y = 40; y < 470; ++y) {
        for (int x = 40; x < 840; ++x) {
            largest = std::max(largest, std::abs(luma(before, x, y) - luma(after, x, y)));
        }
    }
    CHECK(largest < 60);  // under a pixel of motion: only edges change
}

TEST_CASE("each step peaks in acceleration, clicks and lights the lamp at one instant", "[scene]") {
    const Scene scene({.seed = 1});
    std::vector<std::int16_t> sound(48'000 * 3);
    scene.render_sound({.period_ns = 1e9 / 48'000, .count = 48'000 * 3}, sound.data());
    for (std::int64_t step_ns = kFirstStepNs; step_ns < 2'800'000'000; step_ns += kStepPeriodNs) {
        INFO("step at " << step_ns);
        const auto magnitude = [&](std::int64_t t) {
            const auto a = scene.imu_at(t).accel_mps2;
            return std::hypot(a[0], a[1], a[2]);
        };
        std::int64_t peak_ns = step_ns - 300'000'000;
        for (std::int64_t t = peak_ns; t < step_ns + 300'000'000; t += kNsPerMs) {
            peak_ns = magnitude(t) > magnitude(peak_ns) ? t : peak_ns;
        }
        CHECK(std::abs(peak_ns - step_ns) <= 5 * kNsPerMs);
        CHECK(magnitude(step_ns) == Approx(kGravityMps2 + 2.2).margin(0.01));
        const auto frame = static_cast<std::size_t>(step_ns * 48 / 1'000'000);
        CHECK(std::abs(sound[frame - 1]) < 12'000);
        CHECK(sound[frame] > 15'000);
        CHECK_FALSE(scene.is_lamp_on(step_ns - 1));
        CHECK(scene.is_lamp_on(step_ns));
        CHECK(luma(frame_at(scene, step_ns), 5, 5) == kLampOnLuma);
        CHECK(luma(frame_at(scene, step_ns - 1), 5, 5) == kLampOffLuma);
    }
}

TEST_CASE("16 kHz mono is every third original frame, in phase", "[scene]") {
    const Scene scene({.seed = 9});
    std::vector<std::int16_t> original(48'000 * 2 * 2), mono(16'000 * 2);
    scene.render_sound({.period_ns = 1e9 / 48'000, .count = 48'000 * 2, .channel_count = 2}, original.data());
    scene.render_sound({.period_ns = 1e9 / 16'000, .count = 16'000 * 2, .is_mono_mix = true}, mono.data());
    int largest = 0;
    int loudest = 0;
    for (std::size_t i = 0; i < mono.size(); ++i) {
        largest = std::max(largest, std::abs(mono[i] - (original[6 * i] + original[6 * i + 1]) / 2));
        loudest = std::max(loudest, std::abs(mono[i]));
    }
    CHECK(largest <= 8);  // the noise of three tracks
    CHECK(loudest > 14'000);
}

TEST_CASE("a still head shows and feels nothing but gravity", "[scene]") {
    const Scene scene({.seed = 1, .is_walking = false});
    CHECK(frame_at(scene, 0) == frame_at(scene, 5'000'000'000));
    CHECK(scene.imu_at(123'456'789).accel_mps2 == std::array<double, 3>{0.0, kGravityMps2, 0.0});
    CHECK(scene.imu_at(123'456'789).gyro_radps == std::array<double, 3>{});
}

#include "tokens/patches.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "base/error.hpp"

using namespace perceptd;
using namespace perceptd::tokens;

namespace {

struct Frame {
    Frame(std::uint32_t w, std::uint32_t h, std::uint32_t s, std::uint8_t value = 100)
        : width(w), height(h), stride(s), pixels(std::size_t{s} * h, value) {}
    [[nodiscard]] LumaView view() const { return {pixels.data(), width, height, stride}; }
    std::uint32_t width, height, stride;
    std::vector<std::uint8_t> pixels;
};

void add_noise(Frame& frame, std::mt19937& random, double mean, double sigma) {
    std::normal_distribution<float> noise(static_cast<float>(mean), static_cast<float>(sigma));
    for (auto& pixel : frame.pixels) {
        pixel = static_cast<std::uint8_t>(std::lround(std::clamp(noise(random), 0.0F, 255.0F)));
    }
}

// The oracle keeps whole reference frames and knows nothing of the gate's layout.
double distance_of(const Frame& a, const Frame& b, std::uint32_t column, std::uint32_t row) {
    double sum = 0;
    for (std::uint32_t y = row * 16; y < std::min(a.height, row * 16 + 16); ++y) {
        for (std::uint32_t x = column * 16; x < std::min(a.width, column * 16 + 16); ++x) {
            const double d = double(a.pixels[y * a.stride + x]) - double(b.pixels[y * b.stride + x]);
            sum += d * d;
        }
    }
    return std::sqrt(sum);
}

void copy_patch(const Frame& from, Frame& to, std::uint32_t column, std::uint32_t row) {
    for (std::uint32_t y = row * 16; y < std::min(to.height, row * 16 + 16); ++y) {
        for (std::uint32_t x = column * 16; x < std::min(to.width, column * 16 + 16); ++x) {
            to.pixels[y * to.stride + x] = from.pixels[y * from.stride + x];
        }
    }
}

}  // namespace

TEST_CASE("chi-square quantile agrees with published tables") {
    // NIST/SEMATECH e-Handbook table 1.3.6.7.4 upper critical values.
    CHECK(chi_square_quantile(0.999, 100) == Approx(149.449).epsilon(1e-3));
    CHECK(chi_square_quantile(0.99, 100) == Approx(135.807).epsilon(1e-3));
    CHECK(chi_square_quantile(0.95, 50) == Approx(67.505).epsilon(1e-3));
    CHECK(chi_square_quantile(0.999, 10) == Approx(29.588).epsilon(1e-2));
}

TEST_CASE("false alarms on pure noise match the configured rate within 3 sigma") {
    std::mt19937 random(1);
    const double sigma = 3.0;
    PatchGateOptions options;
    options.noise_gain = 0;
    options.noise_floor = sigma * sigma + 1.0 / 12;  // rounding to 8 bits adds 1/12
    options.false_alarm_rate = 0.01;
    options.hysteresis = 1;
    options.intra_interval_frames = 2;  // every second frame renews the reference: independent trials
    Frame frame(512, 512, 512);
    PatchGate gate(512, 512, options);
    std::vector<percept_patch> out(gate.patch_total());
    double trials = 0;
    double alarms = 0;
    for (int pair = 0; pair < 40; ++pair) {
        add_noise(frame, random, 120, sigma);
        REQUIRE(gate.process(frame.view(), out).intra);
        add_noise(frame, random, 120, sigma);
        const PatchFrame tested = gate.process(frame.view(), out);
        REQUIRE_FALSE(tested.intra);
        trials += gate.patch_total();
        alarms += tested.changed_count;
    }
    const double expected = trials * options.false_alarm_rate;
    INFO("alarms " << alarms << " expected " << expected);
    CHECK(std::abs(alarms - expected) <= 3 * std::sqrt(expected * (1 - options.false_alarm_rate)));
}

TEST_CASE("a drift of one grey level per ten frames is caught") {
    PatchGateOptions options;
    options.max_age_frames = 60000;
    options.intra_interval_frames = 60000;
    options.intra_fraction = 1;
    PatchGate gate(64, 64, options);
    std::vector<percept_patch> out(gate.patch_total());
    int changed_at = -1;
    for (int t = 0; t < 200 && changed_at < 0; ++t) {
        const Frame frame(64, 64, 64, static_cast<std::uint8_t>(100 + t / 10));
        const PatchFrame result = gate.process(frame.view(), out);
        if (t > 0 && result.changed_count == gate.patch_total()) {
            changed_at = t;
            CHECK(out[0].distance > gate.tau(0));
        } else if (t > 0) {
            REQUIRE(result.patch_count == 0);
        }
    }
    // tau = sqrt(2 * 330 * 3) = 44.5; woken above 57.9 = 3.6 grey levels over 256 px: at level 4, frame 40.
    CHECK(changed_at == 40);
}

TEST_CASE("every skipped patch lies within the threshold of its last listed value") {
    const double hysteresis = GENERATE(1.0, 1.3);
    std::mt19937 random(7);
    PatchGateOptions options;
    options.hysteresis = hysteresis;
    options.intra_interval_frames = 50;
    options.max_age_frames = 20;
    options.intra_fraction = 0.95;
    PatchGate gate(200, 104, options);  // no multiple of 16, either way
    REQUIRE(gate.column_count() == 13);
    REQUIRE(gate.row_count() == 7);
    std::vector<percept_patch> out(gate.patch_total());
    Frame reference(200, 104, 256);
    std::uint64_t bytes = 0;
    std::vector<int> age(gate.patch_total(), 0);
    for (int t = 0; t < 120; ++t) {
        Frame frame(200, 104, 256);
        // A moving bar, a drift and noise near the threshold.
        add_noise(frame, random, 100 + 0.05 * t, 1.2 + 0.8 * std::sin(t * 0.3));
        for (std::uint32_t y = 0; y < 104; ++y) {
            for (std::uint32_t x = 0; x < 8; ++x) {
                frame.pixels[y * 256 + (x + t * 3) % 200] = 220;
            }
        }
        std::vector<float> tau(gate.patch_total());
        for (std::uint32_t i = 0; i < tau.size(); ++i) {
            tau[i] = gate.tau(i);
        }
        const PatchFrame result = gate.process(frame.view(), out);
        REQUIRE(result.status == Status::Ok);
        CHECK(result.intra == (t == 0 || result.patch_count == gate.patch_total()));
        std::vector<bool> listed(gate.patch_total());
        for (std::uint32_t i = 0; i < result.patch_count; ++i) {
            const percept_patch& p = out[i];
            const std::uint32_t index = p.row * gate.column_count() + p.column;
            listed[index] = true;
            if (t > 0) {
                CHECK(p.distance == Approx(distance_of(frame, reference, p.column, p.row)).margin(1e-4));
                CHECK(p.age_frames == age[index] + 1);
            }
            age[index] = 0;
            copy_patch(frame, reference, p.column, p.row);
            bytes += std::uint64_t{std::min(16u, 200u - p.column * 16u)} * std::min(16u, 104u - p.row * 16u);
        }
        for (std::uint32_t i = 0; i < listed.size(); ++i) {
            if (!listed[i]) {
                const double d = distance_of(frame, reference, i % 13, i / 13);
                REQUIRE(d <= hysteresis * tau[i] * (1 + 1e-6));
                REQUIRE(d <= result.threshold * (1 + 1e-6));
                REQUIRE(++age[i] < 20);
            }
        }
    }
    CHECK(gate.reference_bytes_written() == bytes);
}

TEST_CASE("hysteresis: a sleeping patch needs 1.3 tau, a woken one only tau") {
    PatchGateOptions options;
    options.noise_gain = 0;
    options.noise_floor = 1;
    options.intra_fraction = 1;
    PatchGate gate(16, 16, options);
    std::vector<percept_patch> out(1);
    REQUIRE(gate.process(Frame(16, 16, 16, 100).view(), out).intra);
    const float tau = gate.tau(0);
    // One pixel moved by d gives exactly distance d.
    const auto frame_with = [](int d) {
        Frame frame(16, 16, 16, 100);
        frame.pixels[0] = static_cast<std::uint8_t>(100 + d);
        return frame;
    };
    const int between = static_cast<int>(1.15F * tau);
    const int above = static_cast<int>(1.3F * tau) + 1;
    CHECK(gate.process(frame_with(between).view(), out).patch_count == 0);
    CHECK(gate.process(frame_with(above).view(), out).changed_count == 1);
    CHECK(gate.process(frame_with(above - between).view(), out).changed_count == 1);  // awake: tau is enough
    CHECK(gate.process(frame_with(above - between).view(), out).patch_count == 0);    // sleeps again
    CHECK(gate.process(frame_with(above).view(), out).patch_count == 0);
}

TEST_CASE("a large change makes an I frame; a short span changes nothing") {
    PatchGate gate(64, 64);
    std::vector<percept_patch> out(16);
    CHECK(gate.process(Frame(64, 64, 64, 10).view(), std::span(out).first(15)).status == Status::Full);
    const PatchFrame first = gate.process(Frame(64, 64, 64, 10).view(), out);
    CHECK(first.intra);
    CHECK(out[5].reason == PERCEPT_PATCH_INTRA);
    CHECK(out[5].distance == 0);
    const std::uint64_t bytes = gate.reference_bytes_written();
    CHECK(gate.process(Frame(64, 64, 64, 90).view(), std::span(out).first(3)).status == Status::Full);
    CHECK(gate.reference_bytes_written() == bytes);
    const PatchFrame cut = gate.process(Frame(64, 64, 64, 90).view(), out);
    CHECK(cut.intra);
    CHECK(cut.changed_count == 16);
    CHECK(out[5].reason == (PERCEPT_PATCH_INTRA | PERCEPT_PATCH_CHANGED));
    CHECK(gate.process(Frame(64, 64, 64, 90).view(), out).patch_count == 0);
    gate.force_intra();
    CHECK(gate.process(Frame(64, 64, 64, 90).view(), out).intra);
    CHECK(gate.process(Frame(64, 48, 64, 90).view(), out).status == Status::Invalid);
    CHECK(gate.process(LumaView{reinterpret_cast<const std::uint8_t*>(out.data()), 64, 64, 63}, out).status ==
          Status::Invalid);
    CHECK_THROWS_AS(PatchGate(0, 64), Error);
}

#include "tokens/mel.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "mel_golden.hpp"

using namespace perceptd;
using namespace perceptd::tokens;

namespace {

// The same integers as signal() in make_mel_golden.py.
std::vector<std::int16_t> golden_signal() {
    std::vector<std::int16_t> out;
    std::uint32_t state = 12345;
    std::int64_t phase = 0;
    for (std::int64_t i = 0; i < kGoldenSampleCount; ++i) {
        state = state * 1664525u + 1013904223u;
        const std::int64_t noise = static_cast<std::int64_t>(state >> 16) - 32768;
        phase = (phase + 400 + 3 * i) % 65536;
        const std::int64_t triangle = std::abs(phase - 32768) * 2 - 32768;
        const auto floor_div = [](std::int64_t a, std::int64_t b) { return (a - ((a % b + b) % b)) / b; };
        std::int64_t value = 0;
        if (i < 2400) {
            value = floor_div(noise, 64) + 50;
        } else if (i < 4800) {
            value = floor_div(triangle, 4);
        } else if (i >= 5600) {
            value = triangle + floor_div(noise, 1024);
        }
        out.push_back(static_cast<std::int16_t>(std::clamp<std::int64_t>(value, -32768, 32767)));
    }
    return out;
}

std::vector<percept_mel_slice> run(MelStream& stream, const std::vector<std::int16_t>& samples, std::size_t step) {
    std::vector<percept_mel_slice> all(samples.size() / 160 + 2);
    std::size_t count = 0;
    for (std::size_t at = 0; at < samples.size(); at += step) {
        const auto part = std::span(samples).subspan(at, std::min(step, samples.size() - at));
        const MelPush pushed = stream.push(part, {}, std::span(all).subspan(count));
        REQUIRE(pushed.status == Status::Ok);
        REQUIRE(pushed.samples_consumed == part.size());
        count += pushed.slice_count;
    }
    all.resize(count);
    return all;
}

double worst_error(const std::vector<percept_mel_slice>& slices, const float (*golden)[80]) {
    double worst = 0;
    for (std::size_t i = 0; i < std::size(kGoldenSlices); ++i) {
        for (int b = 0; b < 80; ++b) {
            worst = std::max(worst, std::abs(double(slices[kGoldenSlices[i]].bins[b]) - double(golden[i][b])));
        }
    }
    return worst;
}

}  // namespace

TEST_CASE("the power spectrum equals a plain DFT") {
    for (const std::size_t length : {std::size_t{512}, std::size_t{400}, std::size_t{60}}) {
        RealFft fft(length);
        std::vector<double> input(length);
        std::vector<double> power(fft.bin_count());
        for (std::size_t n = 0; n < length; ++n) {
            input[n] = std::sin(0.37 * double(n)) + 0.01 * double(n * n % 17);
        }
        fft.power(input, power);
        for (std::size_t k = 0; k < power.size(); ++k) {
            long double re = 0;
            long double im = 0;
            for (std::size_t n = 0; n < length; ++n) {
                const long double angle = 2 * 3.14159265358979323846264338L * (k * n % length) / length;
                re += input[n] * std::cos(angle);
                im -= input[n] * std::sin(angle);
            }
            REQUIRE(power[k] == Approx(double(re * re + im * im)).epsilon(1e-10).margin(1e-18));
        }
    }
    CHECK_THROWS(RealFft(14));
    CHECK_THROWS(RealFft(401));
}

TEST_CASE("log-mel equals the double-precision reference") {
    const auto samples = golden_signal();
    long sum = 0;
    for (const auto s : samples) {
        sum += s;
    }
    REQUIRE(sum == kGoldenSampleSum);
    // Odd block sizes: the framing must not depend on how the stream is cut.
    const std::size_t step = GENERATE(std::size_t{1}, std::size_t{37}, std::size_t{160}, std::size_t{8000});
    MelStream kaldi(MelProfile::Kaldi);
    const auto kaldi_slices = run(kaldi, samples, step);
    REQUIRE(kaldi_slices.size() == kKaldiSliceCount);
    CHECK(worst_error(kaldi_slices, kKaldiGolden) <= 1e-4);
    MelStream whisper(MelProfile::WhisperStream);
    const auto whisper_slices = run(whisper, samples, step);
    REQUIRE(whisper_slices.size() == kWhisperSliceCount);
    CHECK(worst_error(whisper_slices, kWhisperGolden) <= 1e-5);
    for (std::size_t i = 0; i < kaldi_slices.size(); ++i) {
        CHECK(kaldi_slices[i].slice_index == i);
        CHECK(kaldi_slices[i].centre_ns == std::int64_t(i) * 10'000'000 + 12'500'000);
        CHECK(whisper_slices[i].centre_ns == std::int64_t(i) * 10'000'000);
    }
}

TEST_CASE("digital silence gives the floor and never an infinity") {
    const std::vector<std::int16_t> silence(1600, 0);
    MelStream kaldi(MelProfile::Kaldi);
    for (const auto& slice : run(kaldi, silence, 160)) {
        CHECK(slice.bins[0] == Approx(-15.9423847));
    }
    MelStream whisper(MelProfile::WhisperStream);
    for (const auto& slice : run(whisper, silence, 160)) {
        CHECK(slice.bins[79] == Approx(-1.5));
    }
}

TEST_CASE("a full span stops the stream without losing a sample") {
    const auto samples = golden_signal();
    MelStream reference(MelProfile::Kaldi);
    const auto expected = run(reference, samples, 8000);
    MelStream stream(MelProfile::Kaldi);
    percept_mel_slice one{};
    std::size_t at = 0;
    std::size_t count = 0;
    while (true) {
        const MelPush pushed = stream.push(std::span(samples).subspan(at), {}, std::span(&one, 1));
        at += pushed.samples_consumed;
        if (pushed.slice_count == 1) {
            REQUIRE(std::equal(one.bins, one.bins + 80, expected[count++].bins));
        }
        if (pushed.status == Status::Ok) {
            break;
        }
    }
    CHECK(count == expected.size());
    CHECK(at == samples.size());
}

TEST_CASE("after a gap the slices stay on the stream's grid") {
    const auto samples = golden_signal();
    for (const auto profile : {MelProfile::Kaldi, MelProfile::WhisperStream}) {
        MelStream reference(profile);
        const auto expected = run(reference, samples, 8000);
        MelStream stream(profile);
        stream.reset(1001);
        const auto after = run(stream, {samples.begin() + 1001, samples.end()}, 333);
        const std::uint64_t first = after.at(0).slice_index;
        CHECK(first == (profile == MelProfile::Kaldi ? 7u : 8u));  // 7 * 160 >= 1001; 8 * 160 - 200 >= 1001
        CHECK(after.size() == expected.size() - first);
        if (profile == MelProfile::Kaldi) {
            for (std::size_t i = 0; i < after.size(); ++i) {
                REQUIRE(std::equal(after[i].bins, after[i].bins + 80, expected[first + i].bins));
            }
        }
    }
}

TEST_CASE("level and clipping of a block") {
    CHECK(level_of({}).level_dbfs == -200.0F);
    const std::vector<std::int16_t> square{16384, -16384, 16384, -16384};
    CHECK(level_of(square).level_dbfs == Approx(-6.0206).margin(1e-3));
    const std::vector<std::int16_t> clipped{32767, -32768, 0, 32766};
    CHECK(level_of(clipped).clipped_count == 2);
}

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numbers>

#include "cadence.hpp"
#include "recording.hpp"
#include "replay_files.hpp"

using namespace perceptd;
using namespace perceptd::replay;
using namespace perceptd::replay::test;

namespace {

/// The walk, or an empty path after saying why the test case is skipped.
std::filesystem::path walk_or_skip() {
    const char* folder = std::getenv("PERCEPTD_RECORDINGS");
    const auto path =
        std::filesystem::path(folder != nullptr ? folder : PERCEPTD_RECORDINGS_DEFAULT) / "gopro-max-walk.mp4";
    if (std::filesystem::exists(path)) {
        return path;
    }
    WARN("SKIP: " << path.string() << " is absent; set PERCEPTD_RECORDINGS to the folder of the shared recordings");
    return {};
}

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::uint64_t read_to_end(Recording& recording) {
    std::uint64_t event_count = 0;
    while (recording.next()) {
        ++event_count;
    }
    return event_count;
}

}  // namespace

TEST_CASE("media file: the walk holds camera, sound and IMU in time order") {
    const auto path = walk_or_skip();
    if (path.empty()) {
        return;
    }
    const auto recording = open_recording(path);
    REQUIRE(recording->camera());
    CHECK(recording->camera()->width_px == 848);
    CHECK(recording->camera()->height_px == 480);
    CHECK(recording->camera()->rate_hz == Approx(29.97).margin(0.01));
    REQUIRE(recording->audio());
    CHECK(recording->audio()->rate_hz == 48000);
    CHECK(recording->audio()->channel_count == 2);
    REQUIRE(recording->imu());
    CHECK(recording->imu()->rate_hz == Approx(198).margin(1));

    constexpr std::size_t stride_bytes = 1024;
    std::vector<std::uint8_t> pixels(frame_bytes(*recording->camera(), stride_bytes), 7);
    std::uint64_t frame_count = 0, audio_frames = 0, mono_samples = 0;
    std::int64_t last_ns = 0, last_frame_ns = -1;
    double luma_sum = 0;
    std::vector<AccelMagnitude> magnitudes;
    while (const auto event = recording->next()) {
        const std::int64_t time_ns = std::visit([](const auto& any) { return any.time_ns; }, *event);
        REQUIRE(time_ns >= last_ns);
        last_ns = time_ns;
        if (const auto* frame = std::get_if<Frame>(&*event)) {
            REQUIRE(frame->index == frame_count++);
            REQUIRE(frame->time_ns > last_frame_ns);
            last_frame_ns = frame->time_ns;
            recording->write_frame(pixels, stride_bytes);
            luma_sum += pixels[240 * stride_bytes + 424];
            REQUIRE(pixels[848] == 7);  // the padding stays the caller's
        } else if (const auto* block = std::get_if<AudioBlock>(&*event)) {
            REQUIRE(block->first_frame == audio_frames);
            REQUIRE(block->first_mono == mono_samples);
            audio_frames += block->original.size() / 2;
            mono_samples += block->mono.size();
        } else {
            const auto& row = std::get<ImuRow>(*event);
            REQUIRE((row.has_accel && row.has_gyro));
            magnitudes.push_back({row.time_ns, std::hypot(row.accel_mps2[0], row.accel_mps2[1], row.accel_mps2[2])});
        }
    }
    CHECK(frame_count == 315);
    CHECK(luma_sum / 315 > 10);
    CHECK(magnitudes.size() == 2082);
    CHECK(audio_frames == 504832);
    CHECK(std::llabs(std::int64_t(mono_samples) - 504832 / 3) <= 1);
    CHECK(last_ns == Approx(10.51e9).margin(0.05e9));
    double sum = 0;
    for (const auto& magnitude : magnitudes) {
        sum += magnitude.mps2;
    }
    CHECK(sum / 2082 == Approx(9.83).margin(0.05));
    CHECK(step_cadence_hz(magnitudes).value() == Approx(1.67).margin(0.05));
}

TEST_CASE("media file: write_frame checks the caller's memory and the order of calls") {
    const auto path = walk_or_skip();
    if (path.empty()) {
        return;
    }
    const auto recording = open_recording(path);
    std::vector<std::uint8_t> pixels(848 * 720);
    CHECK_THROWS_AS(recording->write_frame(pixels, 848), std::logic_error);
    auto event = recording->next();
    while (event && !std::holds_alternative<Frame>(*event)) {
        event = recording->next();
    }
    CHECK_THROWS_AS(recording->write_frame(pixels, 847), std::invalid_argument);
    CHECK_THROWS_AS(recording->write_frame(std::span(pixels).first(pixels.size() - 1), 848), std::invalid_argument);
    CHECK_NOTHROW(recording->write_frame(pixels, 848));
}

TEST_CASE("media file: a walk cut short or overwritten is an error with the file's name") {
    const auto path = walk_or_skip();
    if (path.empty()) {
        return;
    }
    const std::string whole = content_of(path);
    const TemporaryFolder folder;
    for (const double part : {0.001, 0.3, 0.7, 0.999}) {
        const auto cut = folder.write("cut.mp4", whole.substr(0, std::size_t(double(whole.size()) * part)));
        CHECK_THROWS_WITH(read_to_end(*open_recording(cut)), Catch::Contains("cut.mp4"));
    }
    std::string damaged = whole;
    damaged.replace(417048, 64, 64, '\xff');  // the first telemetry packet
    const auto overwritten = folder.write("damaged.mp4", damaged);
    CHECK_THROWS_WITH(read_to_end(*open_recording(overwritten)), Catch::Contains("GPMF"));
}

TEST_CASE("media file: empty, text, playlist and missing files are refused with a reason") {
    const TemporaryFolder folder;
    CHECK_THROWS_WITH(open_recording(folder.write("empty.mp4", "")),
                      Catch::Contains("empty.mp4") && Catch::Contains("empty"));
    CHECK_THROWS_WITH(open_recording(folder.write("text.mp4", "This is not a recording.\n")),
                      Catch::Contains("not a complete media file"));
    const auto sound = folder.write("sound.wav", wav_bytes(16000, 1, std::vector<std::int16_t>(1600, 5)));
    CHECK_THROWS_AS(open_recording(folder.write("list.ffconcat", "ffconcat version 1.0\nfile sound.wav\n")),
                    RecordingError);
    CHECK_THROWS_WITH(open_recording(folder.path() / "none.mp4"), Catch::Contains("none.mp4"));
    CHECK_THROWS_WITH(open_recording("/dev/null"), Catch::Contains("not a regular file"));
    CHECK_NOTHROW(open_recording(sound));
}

TEST_CASE("media file: a recording of sound alone has neither camera nor IMU, 16 kHz mono passes unchanged") {
    std::vector<std::int16_t> samples(10000);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        samples[i] = std::int16_t(i * 7919);
    }
    const TemporaryFolder folder;
    const auto recording = open_recording(folder.write("sound.wav", wav_bytes(16000, 1, samples)));
    CHECK_FALSE(recording->camera());
    CHECK_FALSE(recording->imu());
    std::vector<std::int16_t> original, mono;
    while (const auto event = recording->next()) {
        const auto& block = std::get<AudioBlock>(*event);
        CHECK(block.time_ns == std::int64_t(block.first_frame) * 62500);
        original.insert(original.end(), block.original.begin(), block.original.end());
        mono.insert(mono.end(), block.mono.begin(), block.mono.end());
    }
    CHECK(original == samples);
    CHECK(mono == samples);
}

TEST_CASE("media file: 48 kHz stereo becomes 16 kHz mono without delay") {
    constexpr std::size_t frame_count = 48000;
    std::vector<std::int16_t> samples;
    const auto tone = [](double time_s) { return 10000 * std::sin(2 * std::numbers::pi * 440 * time_s); };
    for (std::size_t i = 0; i < frame_count; ++i) {
        samples.insert(samples.end(), 2, std::int16_t(tone(double(i) / 48000)));
    }
    const TemporaryFolder folder;
    const auto recording = open_recording(folder.write("sound.wav", wav_bytes(48000, 2, samples)));
    std::vector<std::int16_t> mono;
    while (const auto event = recording->next()) {
        const auto& block = std::get<AudioBlock>(*event);
        mono.insert(mono.end(), block.mono.begin(), block.mono.end());
    }
    REQUIRE(mono.size() == 16000);
    double error_max = 0;
    for (std::size_t i = 100; i + 100 < mono.size(); ++i) {
        error_max = std::max(error_max, std::abs(mono[i] - tone(double(i) / 16000)));
    }
    CHECK(error_max < 100);
}

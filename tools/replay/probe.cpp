// perceptd-recording-info FILE [--json]: reads a whole recording and prints what it holds.
// Owns nothing beyond the recording it opens.
// Never needs the daemon.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "cadence.hpp"
#include "recording.hpp"

namespace perceptd::replay {
namespace {

struct Summary {
    std::uint64_t frames = 0;
    std::uint64_t imu_samples = 0;
    std::uint64_t audio_frames = 0;
    std::uint64_t mono_samples = 0;
    std::int64_t last_ns = 0;
    std::vector<AccelMagnitude> magnitudes;

    double mean_accel_mps2() const {
        double sum = 0;
        for (const AccelMagnitude& magnitude : magnitudes) {
            sum += magnitude.mps2;
        }
        return magnitudes.empty() ? NAN : sum / double(magnitudes.size());
    }
};

Summary summarize(Recording& recording) {
    Summary summary;
    std::vector<std::uint8_t> pixels;
    if (const auto camera = recording.camera()) {
        pixels.resize(frame_bytes(*camera, camera->width_px));
    }
    while (const auto event = recording.next()) {
        if (const auto* frame = std::get_if<Frame>(&*event)) {
            recording.write_frame(pixels, recording.camera()->width_px);
            ++summary.frames;
            summary.last_ns = frame->time_ns;
        } else if (const auto* block = std::get_if<AudioBlock>(&*event)) {
            summary.audio_frames += block->original.size() / recording.audio()->channel_count;
            summary.mono_samples += block->mono.size();
            summary.last_ns = block->time_ns;
        } else {
            const auto& row = std::get<ImuRow>(*event);
            ++summary.imu_samples;
            summary.last_ns = row.time_ns;
            if (row.has_accel) {
                summary.magnitudes.push_back(
                    {row.time_ns,
                     std::hypot(double(row.accel_mps2[0]), double(row.accel_mps2[1]), double(row.accel_mps2[2]))});
            }
        }
    }
    return summary;
}

/// A number with `decimals` places, or `missing` where it is not known.
std::string number_text(double value, int decimals, const char* missing) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return std::isfinite(value) ? text : missing;
}

void print(const Recording& recording, const Summary& summary, bool json) {
    struct Line {
        const char* name;
        std::string text;
    };
    const char* missing = json ? "null" : "-";
    std::vector<Line> lines;
    const auto add = [&](const char* name, std::uint64_t value) { lines.push_back({name, std::to_string(value)}); };
    if (const auto camera = recording.camera()) {
        add("width_px", camera->width_px);
        add("height_px", camera->height_px);
        lines.push_back({"frame_rate_hz", number_text(camera->rate_hz, 3, missing)});
    }
    add("frames", summary.frames);
    if (const auto audio = recording.audio()) {
        add("audio_rate_hz", audio->rate_hz);
        add("audio_channels", audio->channel_count);
    }
    add("audio_frames", summary.audio_frames);
    add("mono_samples", summary.mono_samples);
    if (const auto imu = recording.imu()) {
        lines.push_back({"imu_rate_hz", number_text(imu->rate_hz, 3, missing)});
    }
    add("imu_samples", summary.imu_samples);
    lines.push_back({"mean_accel_mps2", number_text(summary.mean_accel_mps2(), 4, missing)});
    lines.push_back({"step_cadence_hz", number_text(step_cadence_hz(summary.magnitudes).value_or(NAN), 2, missing)});
    lines.push_back({"last_event_s", number_text(double(summary.last_ns) * 1e-9, 3, missing)});

    if (!json) {
        for (const Line& line : lines) {
            std::printf("%-16s %s\n", line.name, line.text.c_str());
        }
        return;
    }
    const char* separator = "{";
    for (const Line& line : lines) {
        std::printf("%s\"%s\": %s", separator, line.name, line.text.c_str());
        separator = ", ";
    }
    std::printf("}\n");
}

int run(int argc, char** argv) {
    const char* path = nullptr;
    bool json = false;
    bool usable = true;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (path == nullptr && argv[i][0] != '-') {
            path = argv[i];
        } else {
            usable = false;
        }
    }
    const bool wants_help = argc == 2 && std::strcmp(argv[1], "--help") == 0;
    if (!usable || path == nullptr) {
        std::fprintf(wants_help ? stdout : stderr,
                     "Usage: perceptd-recording-info FILE|FOLDER [--json]\n"
                     "Says what a media file or an EuRoC folder holds: frames, sound, motion and their rates.\n");
        return wants_help ? 0 : 2;
    }
    const auto recording = open_recording(path);
    const Summary summary = summarize(*recording);
    print(*recording, summary, json);
    return 0;
}

}  // namespace
}  // namespace perceptd::replay

int main(int argc, char** argv) {
    try {
        return perceptd::replay::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "perceptd-recording-info: %s\n", error.what());
        return 1;
    }
}

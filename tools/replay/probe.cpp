// perceptd-recording-info FILE [--json]: reads a whole recording and prints what it holds.
// Owns nothing beyond the recording it opens.
// Never needs the daemon.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
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

void list_sensors(const std::string& path) {
    const auto recording = open_recording(path);
    std::string list;
    for (const auto& [is_there, name] :
         {std::pair(recording->camera().has_value(), "camera"), std::pair(recording->audio().has_value(), "microphone"),
          std::pair(recording->imu().has_value(), "imu")}) {
        list += is_there ? (list.empty() ? "" : ",") + std::string(name) : "";
    }
    std::printf("%s\n", list.c_str());
}

void run(const std::string& path, bool json) {
    const auto recording = open_recording(path);
    const Summary summary = summarize(*recording);
    print(*recording, summary, json);
}

}  // namespace
}  // namespace perceptd::replay

int main(int argc, char** argv) {
    CLI::App app("Says what a media file or an EuRoC folder holds: frames, sound, motion and their rates.",
                 "perceptd-recording-info");
    app.set_version_flag("--version", std::string("perceptd-recording-info ") + PERCEPTD_VERSION);
    std::string path;
    bool json = false;
    bool only_sensors = false;
    app.add_option("recording", path, "A media file or an EuRoC folder")->type_name("FILE|FOLDER")->required();
    app.add_flag("--json", json, "One JSON object instead of lines");
    app.add_flag("--sensors", only_sensors, "Only which sensors it holds, as a list; reads no more than its beginning");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            return app.exit(error);
        }
        std::fprintf(stderr, "perceptd-recording-info: %s; see perceptd-recording-info --help\n", error.what());
        return 2;
    }
    try {
        if (only_sensors) {
            perceptd::replay::list_sensors(path);
        } else {
            perceptd::replay::run(path, json);
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "perceptd-recording-info: %s\n", error.what());
        return 1;
    }
}

#include "watch.hpp"

#include <cmath>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <percept/percept.hpp>
#include <sstream>
#include <stdexcept>

#include "hub_clock.hpp"
#include "summary.hpp"

namespace perceptctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPollMs = 500;
constexpr int kPatienceMs = 5000;

volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int) {
    stop_requested = 1;
}

void catch_signals() {
    struct sigaction action {};
    action.sa_handler = request_stop;  // no SA_RESTART: the wait for a window is to end
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
}

const char* state_name(std::uint32_t state) {
    switch (state) {
        case 1: return "still";
        case 2: return "walk";
        case 3: return "turn";
        default: return "unknown";
    }
}

const char* close_reason_name(std::uint32_t reason) {
    switch (reason) {
        case 1: return "complete";
        case 2: return "deadline";
        case 3: return "epoch";
        case 4: return "end";
        default: return "unknown";
    }
}

std::uint64_t dropped(const percept_drops& drops) {
    return drops.lost_unread_count + drops.lost_unreleased_count + drops.revoked_count + drops.lost_upstream_count;
}

Json finite(double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json flag_names(std::uint32_t flags) {
    Json names = Json::array();
    const auto add = [&](std::uint32_t bit, const char* name) {
        if ((flags & bit) != 0) {
            names.push_back(name);
        }
    };
    add(PERCEPT_WINDOW_MISSING_VIDEO, "missing_video");
    add(PERCEPT_WINDOW_PARTIAL_AUDIO, "partial_audio");
    add(PERCEPT_WINDOW_IMU_GAP, "imu_gap");
    add(PERCEPT_WINDOW_EPOCH, "epoch");
    return names;
}

/// "camera,imu" as PERCEPT_CAMERA | PERCEPT_IMU. Throws for a word that is no sensor.
std::uint32_t sensor_bits(const std::string& list) {
    std::uint32_t bits = 0;
    std::istringstream words(list);
    for (std::string word; std::getline(words, word, ',');) {
        if (word != "camera" && word != "microphone" && word != "imu") {
            throw std::invalid_argument("'" + word + "' is no sensor; name camera, microphone or imu");
        }
        bits |= word == "camera" ? PERCEPT_CAMERA : word == "imu" ? PERCEPT_IMU : PERCEPT_MICROPHONE;
    }
    if (bits == 0) {
        throw std::invalid_argument("the list of sensors is empty; name camera, microphone or imu");
    }
    return bits;
}

/// Everything that a line shows, read from the window once.
Json describe(const percept::Window& window, const std::string& heap) {
    const percept_window& view = *window;
    Json line;
    line["window"] = view.id;
    line["t0_ns"] = view.t0_ns;
    line["t1_ns"] = view.t1_ns;
    line["lag_ms"] = static_cast<double>(monotonic_ns() - view.t1_ns) / 1e6;
    line["closed"] = close_reason_name(view.close_reason);
    line["flags"] = flag_names(view.flags);
    line["clock_epoch"] = view.clock_epoch;
    line["frame"] = nullptr;
    if (window.has_frame()) {
        line["frame"] = {{"sequence", view.frame.sequence},
                         {"exposure_midpoint_ns", view.frame.exposure_midpoint_ns},
                         {"width_px", view.frame.width_px},
                         {"height_px", view.frame.height_px}};
    }
    line["patches_kept"] = nullptr;
    line["patches"] = nullptr;
    if (view.patch_block.magic != 0) {
        line["patches_kept"] = view.patch_block.patch_count;
        line["patches"] = std::uint64_t{view.patch_block.column_count} * view.patch_block.row_count;
    }
    line["mel_slices"] = view.mel_block.slice_count;
    line["level_dbfs"] = view.mel_block.magic == 0 ? Json(nullptr) : finite(double{view.mel_block.level_dbfs});
    line["sounds"] = view.sound_count;
    line["imu_rows"] = view.motion_block.row_count;
    line["motion"] = view.motion_block.magic == 0 ? Json(nullptr) : Json(state_name(view.motion_block.state));
    line["cadence_hz"] = view.motion_block.magic == 0 ? Json(nullptr) : finite(double{view.motion_block.cadence_hz});
    line["drops"] = {{"unread", view.drops.lost_unread_count},
                     {"unreleased", view.drops.lost_unreleased_count},
                     {"revoked", view.drops.revoked_count},
                     {"upstream", view.drops.lost_upstream_count}};
    line["heap"] = heap;
    return line;
}

void print_text(const percept::Window& window, const std::string& heap) {
    const percept_window& view = *window;
    char patches[48] = "-";
    if (view.patch_block.magic != 0) {
        std::snprintf(patches, sizeof(patches), "%u/%llu", view.patch_block.patch_count,
                      static_cast<unsigned long long>(view.patch_block.column_count) * view.patch_block.row_count);
    }
    char level[32] = "-";
    if (view.mel_block.magic != 0) {
        std::snprintf(level, sizeof(level), "%.1f dBFS", double{view.mel_block.level_dbfs});
    }
    std::string flags;
    for (const Json& name : flag_names(view.flags)) {
        flags += " " + name.get<std::string>();
    }
    std::printf(
        "#%-6llu %-5s mel %-3u imu %-4u lag %6.1f ms  patches %-9s sound %-11s motion %-7s drops %llu  heap %s%s\n",
        static_cast<unsigned long long>(view.id), window.has_frame() ? "frame" : "-", view.mel_block.slice_count,
        view.motion_block.row_count, static_cast<double>(monotonic_ns() - view.t1_ns) / 1e6, patches, level,
        view.motion_block.magic == 0 ? "-" : state_name(view.motion_block.state),
        static_cast<unsigned long long>(dropped(view.drops)), heap.c_str(), flags.c_str());
}

/// Notices go to the error stream, so that a JSON reader sees windows alone.
void print_new_notice(const percept::Client& client, std::uint64_t& seen_count) {
    const percept_notice notice = client.last_notice();
    if (notice.count != seen_count) {
        seen_count = notice.count;
        std::cerr << "perceptd: " << notice.text << "\n";
    }
}

}  // namespace

int watch(const WatchOptions& options) {
    catch_signals();
    const std::uint32_t sensors = sensor_bits(options.sensors);
    percept::Client client(options.socket_path);
    client.subscribe(sensors);
    const std::string heap = client.heap();
    Summary summary;
    std::uint64_t shown_count = 0;
    std::uint64_t notice_count = 0;
    int waited_ms = 0;
    std::string broken_off;
    bool is_cut = false;
    while (stop_requested == 0 && (options.count == 0 || shown_count < options.count)) {
        try {
            const auto window = client.next_window(kPollMs);
            print_new_notice(client, notice_count);
            if (client.ended()) {
                break;
            }
            if (options.until_end && client.last_notice().kind == PERCEPT_NOTICE_SENSOR_LOST) {
                is_cut = true;
                break;
            }
            if (!window) {
                waited_ms += kPollMs;
                if (waited_ms == kPatienceMs) {
                    std::cerr << "perceptctl: no window for 5 s: see 'journalctl -u perceptd' for silent sensors\n";
                }
                continue;
            }
            waited_ms = 0;
            const WindowFacts facts(*window);
            const std::string line =
                options.json && !options.summary_only ? describe(*window, heap).dump() : std::string();
            if (!window->is_valid()) {
                continue;  // taken back while we read: what we read does not count
            }
            summary.add(facts);
            ++shown_count;
            if (options.summary_only) {
                continue;
            }
            if (options.json) {
                std::printf("%s\n", line.c_str());
            } else {
                print_text(*window, heap);
            }
            std::fflush(stdout);
        } catch (const percept::Error& error) {
            broken_off = error.what();
            break;
        }
    }
    const bool is_whole = client.ended();
    if (broken_off.empty()) {
        try {
            // At the end of a recording the numbers are final already.
            if (is_whole || client.end()) {
                summary.add(client.last_statistics());
            }
        } catch (const percept::Error& error) {
            broken_off = error.what();
        }
    }
    std::printf("%s\n", options.json ? summary.to_json(heap).dump().c_str() : summary.to_text(heap).c_str());
    if (is_cut && broken_off.empty()) {
        broken_off = "the recording broke off before its end";
    }
    if (!broken_off.empty()) {
        std::cerr << "perceptctl: " << broken_off << "\n";
        return 1;
    }
    if (options.until_end && !is_whole && options.count == 0) {
        std::cerr << "perceptctl: stopped before the end of the stream\n";
        return 1;
    }
    return 0;
}

}  // namespace perceptctl

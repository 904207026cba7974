// perceptd-replay: plays a media file or an EuRoC folder through the daemon as if it were its sensors.
// Exit status: 0 played to the end or stopped by a signal, 1 the recording or the daemon failed, 2 wrong usage.
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>

#include "player.hpp"
#include "recording.hpp"
#include "sensor_provider.hpp"

namespace {

using namespace perceptd::replay;

constexpr const char* usage =
    "Usage: perceptd-replay FILE|FOLDER [--socket PATH] [--pace realtime|fast] [--loop] [--sensors LIST]\n"
    "                       [--camera cam0|cam1]\n"
    "Plays a media file (with GPMF telemetry) or an EuRoC folder through perceptd, whose configuration must leave the\n"
    "sensors to a provider. Waits until a client subscribes; ends when the recording is over and the clients are "
    "gone.\n"
    "  --socket PATH    the daemon's channel socket (default /run/perceptd/channel.sock)\n"
    "  --pace           realtime (default), or fast: as fast as the clients read\n"
    "  --loop           begin again at the end\n"
    "  --sensors LIST   only these, of camera,microphone,imu\n"
    "  --camera NAME    which camera of an EuRoC folder: cam0 (default) or cam1\n";

struct CommandLine {
    std::string recording;
    std::string socket = "/run/perceptd/channel.sock";
    std::string sensors;
    std::string camera = "cam0";
    PlayerOptions player;
};

volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int) {
    stop_requested = 1;
}

void catch_signals() {
    struct sigaction action {};
    action.sa_handler = request_stop;  // no SA_RESTART: waits are to end
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
}

/// False after saying what is wrong.
bool parse(int argc, char** argv, CommandLine& line) {
    const auto wrong = [](const std::string& text) {
        std::cerr << "perceptd-replay: " << text << "\n" << usage;
        return false;
    };
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const bool has_value = i + 1 < argc;
        if (argument == "--loop") {
            line.player.loops = true;
        } else if (argument == "--socket" && has_value) {
            line.socket = argv[++i];
        } else if (argument == "--sensors" && has_value) {
            line.sensors = std::string(",") + argv[++i] + ",";
        } else if (argument == "--camera" && has_value) {
            line.camera = argv[++i];
            if (line.camera != "cam0" && line.camera != "cam1") {
                return wrong("--camera is cam0 or cam1, not '" + line.camera + "'");
            }
        } else if (argument == "--pace" && has_value) {
            const std::string pace = argv[++i];
            if (pace != "realtime" && pace != "fast") {
                return wrong("--pace is realtime or fast, not '" + pace + "'");
            }
            line.player.is_realtime = pace == "realtime";
        } else if (argument.starts_with("--")) {
            return wrong("unknown option or missing value: " + argument);
        } else if (line.recording.empty()) {
            line.recording = argument;
        } else {
            return wrong("one recording at a time");
        }
    }
    return !line.recording.empty() || wrong("name a recording");
}

void keep_only(const std::string& sensors, perceptd::v1::Provide& offer) {
    const auto wants = [&](const char* word) {
        return sensors.empty() || sensors.find(std::string(",") + word + ",") != std::string::npos;
    };
    if (!wants("camera")) {
        offer.clear_camera();
    }
    if (!wants("microphone")) {
        offer.clear_audio();
    }
    if (!wants("imu")) {
        offer.clear_imu();
    }
}

int replay(const CommandLine& line) {
    catch_signals();
    const auto open = [&line] { return open_recording(line.recording, line.camera); };
    const std::filesystem::path path(line.recording);
    const std::string name = path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
    // Opened here too, so that a file that is no recording fails before anybody waits for it.
    perceptd::v1::Provide offer = offer_of(*open(), "replay: " + name);
    keep_only(line.sensors, offer);
    SensorProvider provider(line.socket, offer, [] { return stop_requested != 0; });
    std::cerr << "perceptd-replay: ready; waiting for a client\n";
    bool has_played = false;
    int status = 0;
    while (stop_requested == 0) {
        const auto run = provider.wait_for_change();
        if (!run) {
            if (has_played) {
                break;  // over, and nobody listens any more
            }
            continue;
        }
        Player player(provider, *run, line.player);
        const Player::Outcome outcome = player.play(open);
        has_played = outcome != Player::Outcome::Stopped;
        status = outcome == Player::Outcome::Damaged ? 1 : 0;
        std::cerr << "perceptd-replay: " << (has_played ? "end after " : "stopped at ") << player.progress() << "\n";
        if (outcome == Player::Outcome::Damaged) {
            std::cerr << "perceptd-replay: the recording is damaged after " << player.fault() << "\n";
        }
    }
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
        std::cout << usage;
        return 0;
    }
    CommandLine line;
    if (!parse(argc, argv, line)) {
        return 2;
    }
    try {
        return replay(line);
    } catch (const std::exception& error) {
        std::cerr << "perceptd-replay: " << error.what() << "\n";
        return 1;
    }
}

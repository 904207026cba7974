// perceptd-replay: plays a media file or an EuRoC folder through the daemon as if it were its sensors.
// Exit status: 0 played to the end or stopped by a signal, 1 the recording or the daemon failed, 2 wrong usage.
#include <CLI/CLI.hpp>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>

#include "player.hpp"
#include "recording.hpp"
#include "sensor_provider.hpp"

namespace {

using namespace perceptd::replay;

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

std::string check_sensors(const std::string& list) {
    std::istringstream words(list);
    bool is_empty = true;
    for (std::string word; std::getline(words, word, ',');) {
        if (word != "camera" && word != "microphone" && word != "imu") {
            return "'" + word + "' is no sensor; name camera, microphone or imu";
        }
        is_empty = false;
    }
    return is_empty ? "the list is empty; name camera, microphone or imu" : "";
}

void describe(CLI::App& app, CommandLine& line, std::string& pace) {
    app.set_version_flag("--version", std::string("perceptd-replay ") + PERCEPTD_VERSION);
    app.add_option("recording", line.recording, "A media file or an EuRoC folder")
        ->type_name("FILE|FOLDER")
        ->required();
    app.add_option("--socket", line.socket, "The daemon's channel socket")->type_name("PATH")->capture_default_str();
    app.add_option("--pace", pace, "realtime, or fast: as fast as the clients read")
        ->check(CLI::IsMember({"realtime", "fast"}))
        ->capture_default_str();
    app.add_flag("--loop", line.player.loops, "Begin again at the end");
    app.add_option("--sensors", line.sensors, "Only these, of camera,microphone,imu; all when not given")
        ->type_name("LIST")
        ->check(check_sensors);
    app.add_option("--camera", line.camera, "Which camera of an EuRoC folder")
        ->check(CLI::IsMember({"cam0", "cam1"}))
        ->capture_default_str();
}

void keep_only(const std::string& sensors, perceptd::v1::Provide& offer) {
    const auto wants = [&](const char* word) {
        return sensors.empty() || ("," + sensors + ",").find(std::string(",") + word + ",") != std::string::npos;
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
    CLI::App app(
        "Plays a media file (with GPMF telemetry) or an EuRoC folder through perceptd, whose configuration must leave "
        "the\n"
        "sensors to a provider. Waits until a client subscribes; ends when the recording is over and the clients are "
        "gone.",
        "perceptd-replay");
    CommandLine line;
    std::string pace = "realtime";
    describe(app, line, pace);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            return app.exit(error);
        }
        std::cerr << "perceptd-replay: " << error.what() << "; see perceptd-replay --help\n";
        return 2;
    }
    line.player.is_realtime = pace == "realtime";
    try {
        return replay(line);
    } catch (const std::exception& error) {
        std::cerr << "perceptd-replay: " << error.what() << "\n";
        return 1;
    }
}

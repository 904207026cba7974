// perceptd: command line, settings, signals, loop. Everything else is in the library.
#include <signal.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/event_loop.hpp"
#include "base/hot_path.hpp"
#include "base/log.hpp"
#include "daemon.hpp"
#include "session/same_user_authority.hpp"

namespace {

constexpr std::string_view kHelp =
    "Usage: perceptd [OPTION]...\n"
    "Owns the sensors and serves synchronized windows to client processes.\n\n"
    "  --root DIR         read configuration below DIR instead of /\n"
    "  --channel PATH     socket for clients (default /run/perceptd/channel.sock)\n"
    "  --check-config     read the configuration, say what is wrong, and exit\n"
    "  --print-config     print the effective configuration as JSON and exit\n"
    "  --version          print the version and exit\n"
    "  --help             print this and exit\n";

struct CommandLine {
    std::string root;
    std::string channel_path = "/run/perceptd/channel.sock";
    bool check_config = false;
    bool print_config = false;
};

/// Gives back an exit code, or -1 to go on.
int parse(int argc, char** argv, CommandLine& line) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        if (option == "--help") {
            std::cout << kHelp;
            return 0;
        }
        if (option == "--version") {
            std::cout << "perceptd " PERCEPTD_VERSION "\n";
            return 0;
        }
        if (option == "--check-config") {
            line.check_config = true;
        } else if (option == "--print-config") {
            line.print_config = true;
        } else if ((option == "--root" || option == "--channel") && i + 1 < argc) {
            (option == "--root" ? line.root : line.channel_path) = argv[++i];
        } else {
            std::cerr << "perceptd: unknown or incomplete option '" << option << "'; see perceptd --help\n";
            return 2;
        }
    }
    return -1;
}

void block_signals() {
    sigset_t handled;
    ::sigemptyset(&handled);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
        ::sigaddset(&handled, number);
    }
    ::pthread_sigmask(SIG_BLOCK, &handled, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
}

int serve(const CommandLine& line, perceptd::Settings settings) {
    using namespace perceptd;
    block_signals();
    log::open(settings.log.level, log::journal_listens());
    EventLoop loop;
    session::SameUserAuthority authority;
    Daemon daemon(loop, authority, {.settings = settings, .channel_path = line.channel_path});
    const auto stop = [&] { loop.exit(0); };
    const auto on_term = loop.add_signal(SIGTERM, stop);
    const auto on_int = loop.add_signal(SIGINT, stop);
    const auto on_reload = loop.add_signal(SIGHUP, [&] {
        ::sd_notify(0, ("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(monotonic_ns() / kNsPerUs)).c_str());
        try {
            const Settings wanted = load_settings(line.root);
            for (const SettingChange& change : compare(settings, wanted).restart) {
                log::warning("settings", change.pointer + " changed; it takes effect at the next start");
            }
            settings = with_live_changes(settings, wanted);
            daemon.apply_live(settings);
            log::write(log::Message::Reloaded, log::Level::Info, "settings", "configuration reloaded");
        } catch (const std::exception& error) {
            log::write(log::Message::ReloadFailed, log::Level::Error, "settings",
                       std::string("reload failed, the old settings stay: ") + error.what());
        }
        ::sd_notify(0, "READY=1");
    });
    std::uint64_t watchdog_us = 0;
    std::unique_ptr<EventSource> watchdog;
    if (::sd_watchdog_enabled(0, &watchdog_us) > 0) {
        const auto half_ns = static_cast<std::int64_t>(watchdog_us) * kNsPerUs / 2;
        watchdog = loop.add_timer([&watchdog, half_ns] {
            ::sd_notify(0, "WATCHDOG=1");
            watchdog->arm_at(monotonic_ns() + half_ns);
        });
        watchdog->arm_at(monotonic_ns() + half_ns);
    }
    log::write(log::Message::Started, log::Level::Info, "daemon", "serving on " + line.channel_path);
    ::sd_notify(0, "READY=1");
    const int code = loop.run();
    ::sd_notify(0, "STOPPING=1");
    log::write(log::Message::Stopping, log::Level::Info, "daemon", "stopping");
    daemon.shut_down();
    log::info("daemon", "stopped; allocations on hot threads: " + std::to_string(hot_path::allocation_count()));
    return code;
}

}  // namespace

int main(int argc, char** argv) {
    CommandLine line;
    if (const int code = parse(argc, argv, line); code >= 0) {
        return code;
    }
    try {
        perceptd::Settings settings = perceptd::load_settings(line.root);
        if (line.print_config) {
            std::cout << perceptd::to_json_text(settings) << '\n';
            return 0;
        }
        if (line.check_config) {
            std::cout << "configuration is good\n";
            return 0;
        }
        return serve(line, std::move(settings));
    } catch (const perceptd::Error& error) {
        std::cerr << "perceptd: " << error.what() << '\n';
        // EX_CONFIG: the unit does not restart on it, because a restart cannot mend a file.
        return error.code() == perceptd::ErrorCode::InvalidConfiguration ? 78 : 1;
    } catch (const std::exception& error) {
        std::cerr << "perceptd: " << error.what() << '\n';
        return 1;
    }
}

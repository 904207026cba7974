// perceptd: command line, settings, signals, loop. Everything else is in the library.
#include <signal.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/event_loop.hpp"
#include "base/hot_path.hpp"
#include "base/log.hpp"
#include "bus/service.hpp"
#include "daemon.hpp"
#include "session/same_user_authority.hpp"
#include "watchdog.hpp"

namespace {

constexpr std::string_view kHelp =
    "Usage: perceptd [OPTION]...\n"
    "Owns the sensors and serves synchronized windows to client processes.\n\n"
    "  --root DIR         read configuration, and keep answers and the ledger, below DIR instead of /\n"
    "  --bus=BUS          message bus: system (default; polkit decides who may do what), session, a D-Bus address, or\n"
    "                     none; without the system bus, only the daemon's own user may do anything\n"
    "  --channel PATH     socket for clients (default /run/perceptd/channel.sock)\n"
    "  --check-config     read the configuration, say what is wrong, and exit\n"
    "  --print-config     print the effective configuration as JSON and exit\n"
    "  --version          print the version and exit\n"
    "  --help             print this and exit\n";

struct CommandLine {
    std::string root;
    std::string channel_path = "/run/perceptd/channel.sock";
    std::string bus = "system";
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
        } else if (option.substr(0, 6) == "--bus=" && option.size() > 6) {
            line.bus = option.substr(6);
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
}

/// Null where systemd asks for no sign of life.
std::unique_ptr<perceptd::Watchdog> make_watchdog(perceptd::EventLoop& loop, const perceptd::Daemon& daemon,
                                                  perceptd::bus::Service* bus) {
    std::uint64_t period_us = 0;
    if (::sd_watchdog_enabled(0, &period_us) <= 0) {
        return nullptr;
    }
    const auto ask_bus = [bus](std::function<void()> answered) {
        if (bus != nullptr) {
            bus->ping(std::move(answered));
        } else {
            answered();
        }
    };
    return std::make_unique<perceptd::Watchdog>(
        loop, static_cast<std::int64_t>(period_us) * perceptd::kNsPerUs,
        perceptd::Watchdog::Signs{.ask_bus = ask_bus,
                                  .is_sensing = [&daemon] { return daemon.is_sensing(); },
                                  .heartbeat_count = [&daemon] { return daemon.heartbeat_count(); },
                                  .feed = [] { ::sd_notify(0, "WATCHDOG=1"); }});
}

int serve(const CommandLine& line, perceptd::Settings settings) {
    using namespace perceptd;
    ::signal(SIGPIPE, SIG_IGN);
    log::open(settings.log.level, log::journal_listens());
    EventLoop loop;
    session::SameUserAuthority same_user;
    std::unique_ptr<bus::Service> bus;
    if (line.bus != "none") {
        bus = std::make_unique<bus::Service>(loop, bus::address_of(line.bus));
    }
    session::Authority& authority = bus ? bus->authority() : same_user;
    Daemon daemon(loop, authority, {.settings = settings, .channel_path = line.channel_path, .root = line.root});
    // Not before: filling gigabytes of slots may take long, and a signal ends that at once. No thread exists yet.
    block_signals();
    if (bus) {
        bus->serve(daemon);
    }
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
    const std::unique_ptr<Watchdog> watchdog = make_watchdog(loop, daemon, bus.get());
    log::write(log::Message::Started, log::Level::Info, "daemon",
               "serving on " + line.channel_path + ", bus: " + line.bus);
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
            if (!std::cout.flush()) {
                throw std::runtime_error("the output could not be written; is the disk full?");
            }
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

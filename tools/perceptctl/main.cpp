// The command line of perceptctl: options in, exit status out (0 done, 1 failed, 2 wrong usage).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <percept/percept.hpp>
#include <stdexcept>

#include "listing.hpp"
#include "watch.hpp"

namespace {

using perceptctl::ListingOptions;

struct Commands {
    perceptctl::WatchOptions watch;
    ListingOptions listing;
    std::function<int()> chosen;
};

void add_watch(CLI::App& app, Commands& commands) {
    perceptctl::WatchOptions& options = commands.watch;
    options.socket_path = PERCEPT_DEFAULT_SOCKET;
    CLI::App* const watch = app.add_subcommand("watch", "Shows one line per window, and a summary at the end.");
    watch->add_option("--socket", options.socket_path, "The daemon's channel socket")
        ->type_name("PATH")
        ->capture_default_str();
    watch->add_option("--sensors", options.sensors, "Which sensors to ask for")
        ->type_name("LIST")
        ->capture_default_str();
    watch->add_flag("--json", options.json, "One JSON object per line; the last one is the summary");
    watch->add_flag("--summary", options.summary_only, "Only the summary at the end");
    watch->add_option("--count", options.count, "Stop after this many windows")
        ->type_name("N")
        ->check([](const std::string& text) {
            const bool is_count = !text.empty() && text.size() < 10 && text[0] != '0' &&
                                  text.find_first_not_of("0123456789") == std::string::npos;
            return std::string(is_count ? "" : "must be a whole number of at least 1");
        });
    watch->add_flag("--until-end", options.until_end, "Run to the end of a recording; fail if it breaks off before");
    watch->callback([&commands] { commands.chosen = [&commands] { return perceptctl::watch(commands.watch); }; });
}

void add_listing(CLI::App& app, Commands& commands, const char* name, const char* text,
                 int (*show)(const ListingOptions&)) {
    CLI::App* const listing = app.add_subcommand(name, text);
    listing->add_option("--bus", commands.listing.bus, "The daemon's bus: system, session or a D-Bus address")
        ->type_name("BUS")
        ->capture_default_str();
    listing->add_flag("--json", commands.listing.json, "JSON instead of a table");
    listing->callback([&commands, show] { commands.chosen = [&commands, show] { return show(commands.listing); }; });
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Looks at perceptd, the perception daemon.", "perceptctl");
    app.set_version_flag("--version", std::string("perceptctl ") + percept_version());
    app.require_subcommand(1);
    Commands commands;
    add_listing(app, commands, "status", "Shows the daemon and its sensors.", perceptctl::show_status);
    add_listing(app, commands, "sensors", "Lists the sensors and whether they deliver.", perceptctl::show_sensors);
    add_listing(app, commands, "sessions", "Lists the open sessions of all clients.", perceptctl::show_sessions);
    add_listing(app, commands, "config", "Shows the configuration that is in force.", perceptctl::show_config);
    add_watch(app, commands);

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            return app.exit(error);
        }
        const bool is_unknown = app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-';
        std::cerr << "perceptctl: "
                  << (is_unknown ? "there is no command '" + std::string(argv[1]) + "'" : std::string(error.what()))
                  << "; 'perceptctl --help' lists what there is\n";
        return 2;
    }
    try {
        const int status = commands.chosen();
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush()) {
            throw std::runtime_error("the output could not be written; is the disk full?");
        }
        return status;
    } catch (const std::exception& error) {
        std::cerr << "perceptctl: " << error.what() << "\n";
        return 1;
    }
}

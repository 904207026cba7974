// The command line of perceptctl: options in, exit status out (0 done, 1 failed, 2 wrong usage).
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <percept/percept.hpp>

#include "watch.hpp"

int main(int argc, char** argv) {
    CLI::App app("Looks at perceptd, the perception daemon.", "perceptctl");
    app.set_version_flag("--version", std::string("perceptctl ") + percept_version());
    app.require_subcommand(1);

    perceptctl::WatchOptions options;
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
        ->check(CLI::PositiveNumber);
    watch->add_flag("--until-end", options.until_end, "Run to the end of a recording; fail if it breaks off before");

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    try {
        return perceptctl::watch(options);
    } catch (const std::exception& error) {
        std::cerr << "perceptctl: " << error.what() << "\n";
        return 1;
    }
}

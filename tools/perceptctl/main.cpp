// The command line of perceptctl: options in, exit status out (0 done, 1 failed, 2 wrong usage).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <percept/percept.hpp>
#include <stdexcept>

#include "ask.hpp"
#include "ledger.hpp"
#include "listing.hpp"
#include "watch.hpp"

namespace {

using perceptctl::ListingOptions;

struct Commands {
    perceptctl::WatchOptions watch;
    perceptctl::AskOptions ask;
    perceptctl::LedgerOptions ledger;
    std::string ledger_action;
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

void add_ask(CLI::App& app, Commands& commands) {
    perceptctl::AskOptions& options = commands.ask;
    options.socket_path = PERCEPT_DEFAULT_SOCKET;
    CLI::App* const ask = app.add_subcommand(
        "ask", "Asks a model and shows its answer as it is made; Ctrl-C ends the answer, nothing else does.");
    ask->add_option("model", options.model, "A name of the daemon's model folders");
    ask->add_option("prompt", options.prompt, "The user's words");
    CLI::Option* const resume =
        ask->add_option("--resume", options.resume, "Instead of asking: an earlier answer, running, cut short or over")
            ->type_name("ID")
            ->check(CLI::PositiveNumber);
    ask->add_option("--from", options.from, "With --resume: the first token to show")->type_name("N")->needs(resume);
    ask->add_option("--thread", options.thread, "The dialogue that goes on; --json shows it")
        ->type_name("ID")
        ->excludes(resume);
    ask->add_option("--temperature", options.temperature, "0: always the likeliest token")->capture_default_str();
    CLI::Option* const seed =
        ask->add_option("--seed", options.seed, "The same seed gives the same answer on any machine");
    ask->add_option("--top-k", options.top_k, "0: all")->capture_default_str();
    ask->add_option("--top-p", options.top_p, "0: all")->capture_default_str();
    ask->add_option("--min-p", options.min_p, "0: all")->capture_default_str();
    ask->add_option("--repetition-penalty", options.repetition_penalty, "0: none")->capture_default_str();
    ask->add_option("--tokens", options.tokens_max, "At most so many; 0: 256, or what the context has left")
        ->capture_default_str();
    ask->add_option("--stop", options.stops, "A string that ends the answer; may be repeated")->allow_extra_args(false);
    ask->add_option("--socket", options.socket_path, "The daemon's channel socket")
        ->type_name("PATH")
        ->capture_default_str();
    ask->add_flag("--json", options.json, "One JSON object per part; the last one is the whole answer");
    ask->callback([&commands, seed, resume] {
        perceptctl::AskOptions& chosen = commands.ask;
        chosen.has_seed = seed->count() > 0;
        const bool is_question = !chosen.prompt.empty() || !chosen.model.empty();
        if (is_question == (resume->count() > 0)) {
            throw CLI::ValidationError("ask", "needs MODEL and \"PROMPT\", or --resume ID");
        }
        commands.chosen = [&commands] { return perceptctl::ask(commands.ask); };
    });
}

void add_ledger(CLI::App& app, Commands& commands) {
    perceptctl::LedgerOptions& options = commands.ledger;
    CLI::App* const ledger = app.add_subcommand(
        "ledger", "Shows what is kept of you on this device: sessions, answers, who used which sensor when.");
    std::string& action = commands.ledger_action;
    ledger->add_option("action", action, "erase: deletes that, and your kept answers")->check(CLI::IsMember({"erase"}));
    ledger->add_option("--bus", options.bus, "The daemon's bus: system, session or a D-Bus address")
        ->type_name("BUS")
        ->capture_default_str();
    ledger->add_flag("--json", options.json, "JSON instead of tables");
    ledger->add_flag("--all", options.everybody, "Everybody's; for who may manage the device");
    ledger->callback([&commands] {
        commands.ledger.erases = commands.ledger_action == "erase";
        commands.chosen = [&commands] { return perceptctl::show_or_erase_ledger(commands.ledger); };
    });
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
    add_ask(app, commands);
    add_ledger(app, commands);

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

// The entry point that every unit test executable shares. As in the daemon, a reader that is gone is an error and
// not a signal.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <csignal>

int main(int argc, char* argv[]) {
    ::signal(SIGPIPE, SIG_IGN);
    return Catch::Session().run(argc, argv);
}

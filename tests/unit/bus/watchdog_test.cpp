// Watchdog: fed only while the bus answers and the pipeline moves.
#include "watchdog.hpp"

#include <catch2/catch.hpp>

#include "base/clock.hpp"

using namespace perceptd;

namespace {

constexpr std::int64_t kLongNs = 20 * kNsPerSecond;
constexpr std::int64_t kShortNs = 200 * kNsPerMs;

struct World {
    bool bus_answers = true;
    bool is_sensing = false;
    bool moves = true;
    std::uint64_t heartbeat_count = 0;
    int fed_count = 0;

    /// How often the watchdog was fed in 10 ms looks, until it was fed `enough` times or `limit_ns` are over.
    int run(int enough, std::int64_t limit_ns) {
        EventLoop loop;
        Watchdog watchdog(loop, 40 * kNsPerMs,
                          {.ask_bus =
                               [this](std::function<void()> answered) {
                                   if (bus_answers) {
                                       answered();
                                   }
                               },
                           .is_sensing = [this] { return is_sensing; },
                           .heartbeat_count = [this] { return moves ? ++heartbeat_count : heartbeat_count; },
                           .feed =
                               [&] {
                                   if (++fed_count == enough) {
                                       loop.exit(0);
                                   }
                               }});
        const auto end = loop.add_timer([&loop] { loop.exit(0); });
        end->arm_at(monotonic_ns() + limit_ns);
        loop.run();
        return fed_count;
    }
};

}  // namespace

TEST_CASE("a daemon that is well feeds its watchdog, with and without sensors") {
    CHECK(World{}.run(3, kLongNs) == 3);
    CHECK(World{.is_sensing = true}.run(3, kLongNs) == 3);
    CHECK(World{.moves = false}.run(3, kLongNs) == 3);  // no sensor is held: there is no pipeline to move
}

TEST_CASE("a bus that is silent starves the watchdog") {
    CHECK(World{.bus_answers = false}.run(3, kShortNs) == 0);
}

TEST_CASE("a pipeline that stands still starves the watchdog") {
    CHECK(World{.is_sensing = true, .moves = false}.run(3, kShortNs) ==
          1);  // the first look has nothing to compare with
}

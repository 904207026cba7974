// Connection: a bus on the daemon's loop; a handler that throws, a name that is taken, a bus that dies.
#include "bus/connection.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "bus/caller_lookup.hpp"
#include "bus/interface.hpp"
#include "support/private_bus.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define PERCEPTD_TEST_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PERCEPTD_TEST_ASAN
#endif
#endif
#ifdef PERCEPTD_TEST_ASAN
#include <sanitizer/lsan_interface.h>
#endif

using namespace perceptd;
using namespace perceptd::bus;
using perceptd::test::PrivateBus;

namespace {

constexpr const char* kTest = "org.perceptd1.Test";

Address address_of(const PrivateBus& bus) {
    return {Address::Kind::Private, bus.address()};
}

/// Ends the loop at the latest after ten seconds, so that a failing test ends.
std::unique_ptr<EventSource> deadline(EventLoop& loop) {
    auto timer = loop.add_timer([&loop] { loop.exit(1); });
    timer->arm_at(monotonic_ns() + 10 * kNsPerSecond);
    return timer;
}

/// sdbus-c++ 1.2 forgets the bus that it could not start; the daemon ends then, but a test must not.
class LeaksAllowed {
public:
    LeaksAllowed() {
#ifdef PERCEPTD_TEST_ASAN
        __lsan_disable();
#endif
    }
    ~LeaksAllowed() {
#ifdef PERCEPTD_TEST_ASAN
        __lsan_enable();
#endif
    }
    LeaksAllowed(const LeaksAllowed&) = delete;
    LeaksAllowed& operator=(const LeaksAllowed&) = delete;
};

struct Answer {
    std::string error;
    std::string text;
};

/// Calls a method without arguments, from a connection of its own.
Answer call(const std::string& address, const char* destination, const char* method) {
    const auto connection = sdbus::createSessionBusConnectionWithAddress(address);
    const auto proxy = sdbus::createProxy(*connection, destination, "/test");
    try {
        proxy->callMethod(proxy->createMethodCall(kTest, method), std::uint64_t{5'000'000});
        return {};
    } catch (const sdbus::Error& error) {
        return {error.getName(), error.getMessage()};
    }
}

}  // namespace

TEST_CASE("handlers that throw answer with an error and the connection goes on") {
    PrivateBus bus;
    EventLoop loop;
    Connection connection(loop, address_of(bus));
    const auto object = sdbus::createObject(connection.native(), "/test");
    Interface interface(*object, kTest);
    int good_count = 0;
    interface.method("Throw", {}, {}, [](const sdbus::MethodCall&) { throw std::runtime_error("broken"); });
    interface.method("Refuse", {}, {}, [](const sdbus::MethodCall&) {
        Error error(ErrorCode::Busy, "later");
        error.retry_after_ms = 7;
        throw error;
    });
    interface.method("Good", {}, {}, [&good_count](const sdbus::MethodCall& call) {
        ++good_count;
        call.createReply().send();
    });
    object->finishRegistration();
    connection.request_name("org.perceptd1.Test");

    const auto limit = deadline(loop);
    std::vector<Answer> answers;
    std::atomic<bool> is_done{false};
    std::thread caller([&] {
        for (const char* const method : {"Throw", "Good", "Refuse", "Throw", "Good"}) {
            answers.push_back(call(bus.address(), "org.perceptd1.Test", method));
        }
        is_done = true;
    });
    std::unique_ptr<EventSource> pulse;
    pulse = loop.add_timer([&] {
        if (is_done) {
            loop.exit(0);
        }
        pulse->arm_at(monotonic_ns() + 20 * kNsPerMs);
    });
    pulse->arm_at(monotonic_ns());
    CHECK(loop.run() == 0);
    caller.join();
    REQUIRE(answers.size() == 5);
    CHECK(answers[0].error == "org.perceptd1.Error.Internal");
    CHECK(answers[1].error.empty());
    CHECK(answers[2].error == "org.perceptd1.Error.Busy");
    CHECK(answers[2].text == "later (retry after 7 ms)");
    CHECK(answers[4].error.empty());
    CHECK(good_count == 2);
}

TEST_CASE("the bus answers pings and names callers; an idle connection does not wake the loop") {
    PrivateBus bus;
    EventLoop loop;
    Connection connection(loop, address_of(bus));
    CallerLookup lookup(connection);
    const auto limit = deadline(loop);
    bool answered = false;
    session::Peer seen;
    bool unknown_is_null = false;
    int turn_count = 0;
    const auto turns = loop.add_prepare([&turn_count] { ++turn_count; });
    const auto idle_end = loop.add_timer([&loop] { loop.exit(0); });
    lookup.ping([&] { answered = true; });
    lookup.identify(connection.native().getUniqueName(), [&](const session::Peer* peer) { seen = *peer; });
    lookup.identify(":77.77", [&](const session::Peer* peer) {
        unknown_is_null = peer == nullptr;
        turn_count = 0;
        idle_end->arm_at(monotonic_ns() + 200 * kNsPerMs);
    });
    CHECK(loop.run() == 0);
    CHECK(answered);
    CHECK(seen.uid == ::getuid());
    CHECK(seen.pid == ::getpid());
    CHECK(seen.bus_name == connection.native().getUniqueName());
    CHECK(unknown_is_null);
    CHECK(turn_count < 10);
}

TEST_CASE("a bus that hangs answers no ping, and says so to nobody") {
    PrivateBus bus;
    EventLoop loop;
    Connection connection(loop, address_of(bus));
    CallerLookup lookup(connection);
    bool answered = false;
    bus.send(SIGSTOP);
    lookup.ping([&answered] { answered = true; });
    const auto end = loop.add_timer([&loop] { loop.exit(0); });
    end->arm_at(monotonic_ns() + 300 * kNsPerMs);
    CHECK(loop.run() == 0);
    CHECK_FALSE(answered);
    CHECK(connection.is_open());
    bus.send(SIGCONT);
}

TEST_CASE("a name that is taken names its owner's process") {
    PrivateBus bus;
    EventLoop loop;
    Connection first(loop, address_of(bus));
    first.request_name(kBusName);
    Connection second(loop, address_of(bus));
    try {
        second.request_name(kBusName);
        FAIL("the name was given twice");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Busy);
        CHECK(std::string(error.what()).find("process " + std::to_string(::getpid())) != std::string::npos);
    }
}

TEST_CASE("a bus that dies is noticed once, and the loop goes on") {
    PrivateBus bus;
    EventLoop loop;
    auto connection = std::make_unique<Connection>(loop, address_of(bus));
    const auto limit = deadline(loop);
    int lost_count = 0;
    const auto end = loop.add_timer([&loop] { loop.exit(0); });
    connection->on_lost([&](const std::string& reason) {
        ++lost_count;
        CHECK_FALSE(reason.empty());
        connection.reset();
        end->arm_at(monotonic_ns() + 50 * kNsPerMs);
    });
    const auto kill = loop.add_timer([&bus] { bus.stop(); });
    kill->arm_at(monotonic_ns() + 10 * kNsPerMs);
    CHECK(loop.run() == 0);
    CHECK(lost_count == 1);
}

TEST_CASE("a bus that is not there says what to do") {
    EventLoop loop;
    const LeaksAllowed by_the_library;
    try {
        const Connection connection(loop, {Address::Kind::Private, "unix:path=/nonexistent/bus"});
        FAIL("connected to nothing");
    } catch (const Error& error) {
        CHECK(std::string(error.what()).find("--bus=none") != std::string::npos);
    }
}

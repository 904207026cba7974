// PolkitAuthority: yes only when polkit says yes; anything else is no, in time.
#include "bus/polkit_authority.hpp"

#include <catch2/catch.hpp>
#include <optional>

#include "support/fake_polkit.hpp"
#include "support/private_bus.hpp"

using namespace perceptd;
using namespace perceptd::bus;
using perceptd::session::Peer;
using perceptd::session::Verdict;
using perceptd::test::FakePolkit;
using perceptd::test::PrivateBus;
using Mode = FakePolkit::Mode;

namespace {

const Peer kBusPeer{.uid = 1000, .gid = 1000, .pid = 1, .start_time_ticks = 0, .bus_name = ":1.42"};
const Peer kProcessPeer{.uid = 1000, .gid = 1000, .pid = 4242, .start_time_ticks = 99, .bus_name = {}};
const std::vector<std::string> kCamera{"org.perceptd1.use-camera"};
const std::vector<std::string> kAll{"org.perceptd1.use-camera", "org.perceptd1.use-microphone",
                                    "org.perceptd1.use-imu"};

struct Result {
    std::optional<Verdict> verdict;
    std::string denied;
    int count = 0;
};

/// A bus, a loop and the authority on it. The loop runs once: a test does all it wants in `steps`.
struct Stage {
    PrivateBus bus;
    EventLoop loop;
    Connection connection{loop, {Address::Kind::Private, bus.address()}};
    PolkitAuthority authority{connection, {.answer_ns = 300 * kNsPerMs, .dialogue_ns = 300 * kNsPerMs}};
    std::vector<std::function<void(PolkitAuthority::Callback)>> steps;
    std::vector<Result> results;

    /// Runs each step after the answer to the one before.
    void run() {
        results.resize(steps.size());
        const auto limit = loop.add_timer([this] { loop.exit(1); });
        limit->arm_at(monotonic_ns() + 20 * kNsPerSecond);
        loop.defer([this] { next(0); });
        CHECK(loop.run() == 0);
    }

private:
    void next(std::size_t step) {
        if (step == steps.size()) {
            loop.exit(0);
            return;
        }
        steps[step]([this, step](Verdict verdict, const std::string& denied) {
            Result& result = results[step];
            result.verdict = verdict;
            result.denied = denied;
            if (++result.count == 1) {
                loop.defer([this, step] { next(step + 1); });
            }
        });
    }
};

}  // namespace

TEST_CASE("polkit's yes and no are passed on, with the first action refused") {
    Stage stage;
    FakePolkit polkit(stage.bus.address());
    stage.steps = {[&](auto done) { stage.authority.authorize(kBusPeer, kAll, done); },
                   [&](auto done) {
                       polkit.deny(kAll[1]);
                       stage.authority.authorize(kBusPeer, kAll, done);
                   },
                   [&](auto done) {
                       polkit.deny("");
                       stage.authority.authorize(kProcessPeer, kCamera, done);
                   }};
    stage.run();
    CHECK(stage.results[0].verdict == Verdict::Granted);
    CHECK(stage.results[0].denied.empty());
    CHECK(stage.results[1].verdict == Verdict::Denied);
    CHECK(stage.results[1].denied == kAll[1]);
    CHECK(stage.results[2].verdict == Verdict::Granted);
    const auto questions = polkit.questions();
    REQUIRE(questions.size() == 6);
    CHECK(questions[0].kind == "system-bus-name");
    CHECK(questions[0].name == ":1.42");
    CHECK(questions[0].flags == 0);
    CHECK(questions[5].kind == "unix-process");
    CHECK(questions[5].pid == 4242);
    CHECK(questions[5].start_time == 99);
    CHECK(questions[5].uid == 1000);
}

TEST_CASE("a polkit that hangs, fails or talks nonsense grants nothing") {
    Stage stage;
    FakePolkit polkit(stage.bus.address());
    for (const Mode mode : {Mode::Hang, Mode::Garbage, Mode::Empty, Mode::Fail}) {
        stage.steps.emplace_back([&, mode](auto done) {
            polkit.set(mode);
            stage.authority.authorize(kBusPeer, kCamera, done);
        });
    }
    stage.run();
    for (const Result& result : stage.results) {
        CHECK(result.verdict == Verdict::Unavailable);
        CHECK(result.denied == kCamera.front());
        CHECK(result.count == 1);
    }
}

TEST_CASE("without polkit nothing is granted") {
    Stage stage;
    stage.steps = {[&](auto done) { stage.authority.authorize(kBusPeer, kCamera, done); }};
    stage.run();
    CHECK(stage.results[0].verdict == Verdict::Unavailable);
}

TEST_CASE("an unknown action and a process that cannot be named are denied without asking") {
    Stage stage;
    FakePolkit polkit(stage.bus.address());
    const Peer gone{.uid = 1000, .gid = 1000, .pid = 4242, .start_time_ticks = 0, .bus_name = {}};
    stage.steps = {[&](auto done) {
                       stage.authority.authorize(kBusPeer, {kCamera.front(), "org.perceptd1.fly"}, done);
                   },
                   [&](auto done) { stage.authority.authorize(gone, kCamera, done); },
                   [&](auto done) { stage.authority.authorize(Peer{}, kCamera, done); }};
    stage.run();
    CHECK(stage.results[0].denied == "org.perceptd1.fly");
    for (const Result& result : stage.results) {
        CHECK(result.verdict == Verdict::Denied);
    }
    CHECK(polkit.questions().empty());
}

TEST_CASE("a person is asked only where that helps, and what was authenticated holds until it is denied") {
    Stage stage;
    FakePolkit polkit(stage.bus.address());
    polkit.set(Mode::Challenge);
    stage.steps = {[&](auto done) { stage.authority.authorize(kBusPeer, kCamera, done); },
                   [&](auto done) { stage.authority.recheck(kBusPeer, kCamera, done); },
                   [&](auto done) { stage.authority.recheck(kProcessPeer, kCamera, done); },
                   [&](auto done) {
                       polkit.set(Mode::Deny);
                       stage.authority.recheck(kBusPeer, kCamera, done);
                   },
                   [&](auto done) {
                       polkit.set(Mode::Challenge);
                       stage.authority.forget(kBusPeer);
                       stage.authority.recheck(kBusPeer, kCamera, done);
                   },
                   [&](auto done) {
                       polkit.set(Mode::Refuse);
                       stage.authority.authorize(kBusPeer, kCamera, done);
                   }};
    stage.run();
    const std::vector<Verdict> expected{Verdict::Granted, Verdict::Granted, Verdict::Denied,
                                        Verdict::Denied,  Verdict::Denied,  Verdict::Denied};
    for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO("step " << i);
        CHECK(stage.results[i].verdict == expected[i]);
    }
    std::vector<std::uint32_t> flags;
    for (const auto& question : polkit.questions()) {
        flags.push_back(question.flags);
    }
    CHECK(flags == std::vector<std::uint32_t>{0, 1, 0, 0, 0, 0, 0, 1});  // a recheck raises no dialogue
}

TEST_CASE("polkit's Changed is heard") {
    Stage stage;
    FakePolkit polkit(stage.bus.address());
    int heard_count = 0;
    stage.steps = {[&](auto done) {
        stage.authority.on_changed([&heard_count, done] {
            ++heard_count;
            done(Verdict::Granted, "");
        });
        polkit.change();
    }};
    stage.run();
    CHECK(heard_count == 1);
}

TEST_CASE("when the bus has gone, what waits is answered with no") {
    Stage stage;
    FakePolkit polkit(stage.bus.address());
    polkit.set(Mode::Hang);
    Result after;
    stage.steps = {[&](auto done) {
        stage.authority.authorize(kBusPeer, kAll, done);
        stage.authority.fail_all();
        stage.authority.authorize(kBusPeer, kAll,
                                  [&after](Verdict verdict, const std::string&) { after.verdict = verdict; });
    }};
    stage.run();
    CHECK(stage.results[0].verdict == Verdict::Unavailable);
    CHECK(stage.results[0].count == 1);
    CHECK(after.verdict == Verdict::Unavailable);
}

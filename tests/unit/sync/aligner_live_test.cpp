#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "sync/aligner.hpp"

using namespace perceptd;
using perceptd::sensor::Kind;
using perceptd::sync::Aligner;
using perceptd::sync::AlignerOptions;
using perceptd::sync::CloseReason;
using perceptd::sync::WindowPlan;

namespace {

constexpr std::int64_t kPeriod_ns = 33'333'333;
constexpr std::int64_t kLongest_ns = 200'000'000;
constexpr std::int64_t kBlock_ns = 10'000'000;

sensor::Sample frame_of(std::uint64_t sequence) {
    sensor::Sample frame;
    frame.sequence = sequence;
    return frame;
}

}  // namespace

TEST_CASE("live: random delays and losses keep windows gapless, bounded and within the deadline") {
    std::mt19937_64 random(99);
    constexpr std::int64_t kStep_ns = 1'000'000;
    for (int round = 0; round < 200; ++round) {
        Aligner aligner(AlignerOptions{});
        struct Event {
            std::int64_t arrival_ns;
            Kind kind;
            std::int64_t hub_ns;
        };
        std::vector<Event> events;
        auto add_stream = [&](Kind kind, std::int64_t period_ns, std::int64_t delay_ns) {
            std::int64_t arrival_ns = 0;  // streams keep their order
            for (std::int64_t t = period_ns; t < 3'000'000'000; t += period_ns) {
                const std::int64_t late_ns = random() % 50 == 0 ? 80'000'000 : 0;
                arrival_ns = std::max(arrival_ns, t + static_cast<std::int64_t>(random() % delay_ns) + late_ns);
                if (random() % 20 != 0) {
                    events.push_back({arrival_ns, kind, t});
                }
            }
        };
        add_stream(Kind::Camera, kPeriod_ns, 15'000'000);
        add_stream(Kind::Microphone, kBlock_ns, 5'000'000);
        add_stream(Kind::Imu, 5'000'000, 3'000'000);
        std::stable_sort(events.begin(), events.end(),
                         [](const Event& a, const Event& b) { return a.arrival_ns < b.arrival_ns; });
        std::size_t next = 0;
        std::uint64_t taken = 0;
        std::uint64_t late_rows = 0;
        std::uint64_t id = 0;
        std::uint64_t with_frame = 0;
        std::int64_t last_t1_ns = INT64_MIN;
        bool last_seen = false;
        for (std::int64_t now = 0; now < 4'000'000'000 && !last_seen; now += kStep_ns) {
            for (; next < events.size() && events[next].arrival_ns <= now; ++next) {
                const Event& e = events[next];
                if (e.kind == Kind::Camera) {
                    taken += aligner.on_frame(e.hub_ns, frame_of(next)) == Status::Ok ? 1 : 0;
                } else {
                    const bool late = e.hub_ns < last_t1_ns;
                    REQUIRE((aligner.admit(e.kind, e.hub_ns) == Status::Late) == late);
                    late_rows += late ? 1 : 0;
                    REQUIRE(aligner.advance(e.kind, e.hub_ns) == Status::Ok);
                }
            }
            if (next == events.size()) {
                for (const Kind kind : {Kind::Camera, Kind::Microphone, Kind::Imu}) {
                    aligner.end(kind);
                }
            }
            WindowPlan plan;
            while (aligner.poll(now, plan) == Status::Ok) {
                REQUIRE(plan.id == id++);
                REQUIRE((last_t1_ns == INT64_MIN || plan.t0_ns == last_t1_ns));
                REQUIRE(plan.t1_ns > plan.t0_ns);
                REQUIRE(plan.t1_ns - plan.t0_ns <= kLongest_ns);
                REQUIRE(plan.added_latency_ns >= 0);
                // A frame that comes late can only end a window that the deadline had let go before.
                REQUIRE(plan.added_latency_ns <= 20'000'000 + kStep_ns + kPeriod_ns);
                with_frame += plan.has_frame ? 1 : 0;
                last_t1_ns = plan.t1_ns;
                last_seen = plan.last;
            }
            REQUIRE(aligner.next_deadline_ns() > now);  // a timer armed with it never spins
        }
        REQUIRE(last_seen);
        REQUIRE(with_frame == taken);
        REQUIRE(aligner.counters().late_items[1] + aligner.counters().late_items[2] == late_rows);
    }
}

TEST_CASE("live: a silent camera gives ticks and flags, silent sound is flagged, neither stalls") {
    Aligner aligner(AlignerOptions{});
    REQUIRE(aligner.begin(Kind::Microphone, 0) == Status::Ok);
    REQUIRE(aligner.begin(Kind::Imu, 0) == Status::Ok);
    REQUIRE(aligner.on_frame(1'000'000, frame_of(0)) == Status::Ok);
    REQUIRE(aligner.advance(Kind::Imu, 500'000'000) == Status::Ok);
    WindowPlan plan;
    const std::int64_t due_ns = 1'000'000 + kPeriod_ns + 20'000'000;
    CHECK(aligner.poll(0, plan) == Status::Again);
    CHECK(aligner.next_deadline_ns() == due_ns);
    CHECK(aligner.poll(due_ns - 1, plan) == Status::Again);
    REQUIRE(aligner.poll(due_ns, plan) == Status::Ok);
    CHECK(plan.flags == sync::kPartialAudio);
    CHECK(plan.close_reason == CloseReason::Deadline);
    CHECK(plan.added_latency_ns == 20'000'000);
    REQUIRE(aligner.advance(Kind::Microphone, 500'000'000) == Status::Ok);
    CHECK(aligner.poll(due_ns, plan) == Status::Again);
    REQUIRE(aligner.poll(due_ns + kPeriod_ns, plan) == Status::Ok);
    CHECK(plan.flags == (sync::kMissingVideo | sync::kTick));
    CHECK(aligner.admit(Kind::Imu, plan.t1_ns - 1) == Status::Late);
    CHECK(aligner.admit(Kind::Imu, plan.t1_ns) == Status::Ok);
    // The camera comes back with the very stamp of the open tick: no empty window, the frame moves in.
    REQUIRE(aligner.on_frame(plan.t1_ns, frame_of(9)) == Status::Ok);
    REQUIRE(aligner.poll(due_ns + 2 * kPeriod_ns, plan) == Status::Ok);
    CHECK((plan.has_frame && plan.frame.sequence == 9 && (plan.flags & sync::kMissingVideo) == 0));
}

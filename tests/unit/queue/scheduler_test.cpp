// The scheduler by hand: who is next, with which rank, for how long.
#include "queue/scheduler.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "base/hot_path.hpp"

using namespace perceptd;
using namespace perceptd::queue;

namespace {

Job job_of(JobClass job_class, FlowId flow, std::int64_t deadline_ns = 0) {
    Job job;
    job.job_class = job_class;
    job.flow = flow;
    job.deadline_ns = deadline_ns;
    return job;
}

FlowRequest flow_of(JobClass job_class, std::int64_t period, std::int64_t deadline, std::int64_t cost,
                    std::int64_t segment = 1) {
    return {job_class, period, deadline, cost, segment, 0};
}

std::vector<std::size_t> picks(Scheduler& scheduler, std::int64_t now_ns) {
    std::vector<std::size_t> places;
    Assignment assignment;
    while (scheduler.pick(now_ns, assignment)) {
        places.push_back(assignment.place);
    }
    return places;
}

}  // namespace

TEST_CASE("The earliest deadline is next; flows come before others and those before background work") {
    Scheduler scheduler({.jobs_max = 8, .depth = 8});
    scheduler.open_flow(1, flow_of(JobClass::Hard, 100, 50, 10));
    scheduler.open_flow(2, flow_of(JobClass::Soft, 100, 40, 10));
    Job background = job_of(JobClass::Soft, 0, 20);
    background.is_foreground = false;
    REQUIRE(scheduler.add(0, background, 0) == Status::Ok);
    REQUIRE(scheduler.add(1, job_of(JobClass::BestEffort, 0), 0) == Status::Ok);
    REQUIRE(scheduler.add(2, job_of(JobClass::Soft, 0, 30), 0) == Status::Ok);
    REQUIRE(scheduler.add(3, job_of(JobClass::Hard, 1), 0) == Status::Ok);
    REQUIRE(scheduler.add(4, job_of(JobClass::Soft, 2), 0) == Status::Ok);
    CHECK(picks(scheduler, 0) == std::vector<std::size_t>{4, 3, 2, 1, 0});
}

TEST_CASE("The device always holds the most urgent jobs, and no more than its depth of others") {
    Scheduler scheduler({.jobs_max = 8, .depth = 2});
    for (std::size_t i = 0; i < 4; ++i) {
        REQUIRE(scheduler.add(i, job_of(JobClass::Soft, 0, 1000 + static_cast<std::int64_t>(i)), 0) == Status::Ok);
    }
    CHECK(picks(scheduler, 0) == std::vector<std::size_t>{0, 1});
    REQUIRE(scheduler.add(4, job_of(JobClass::Soft, 0, 500), 0) == Status::Ok);
    CHECK(picks(scheduler, 0) == std::vector<std::size_t>{4});
    scheduler.remove(4, 5, true, 10);
    CHECK(picks(scheduler, 10).empty());
    scheduler.remove(0, 5, true, 20);
    CHECK(picks(scheduler, 20) == std::vector<std::size_t>{2});

    Scheduler first_come({.jobs_max = 8, .depth = 2, .is_preemptive = false});
    REQUIRE(first_come.add(0, job_of(JobClass::Soft, 0, 1000), 0) == Status::Ok);
    REQUIRE(first_come.add(1, job_of(JobClass::Soft, 0, 1000), 0) == Status::Ok);
    CHECK(picks(first_come, 0).size() == 2);
    REQUIRE(first_come.add(2, job_of(JobClass::Soft, 0, 10), 0) == Status::Ok);
    CHECK(picks(first_come, 0).empty());  // it could not overtake there
}

TEST_CASE("A client's own date buys no urgency, an early job counts from its period, an overrun goes to the back") {
    Scheduler scheduler({.jobs_max = 8, .depth = 8});
    scheduler.open_flow(7, flow_of(JobClass::Hard, 100, 50, 10));
    Assignment assignment;
    REQUIRE(scheduler.add(0, job_of(JobClass::Hard, 7, 1), 0) == Status::Ok);
    REQUIRE(scheduler.pick(0, assignment));
    CHECK(assignment.rank == Rank{0, 50});
    CHECK(assignment.grant_ns == 10);
    REQUIRE(scheduler.add(1, job_of(JobClass::Hard, 7), 30) == Status::Ok);
    REQUIRE(scheduler.pick(30, assignment));
    CHECK(assignment.rank == Rank{0, 150});
    const Assignment after = scheduler.spent(0, 12, 12);
    CHECK(after.rank.tier == 2);
    CHECK(after.grant_ns == kUnlimitedNs);
    CHECK(scheduler.counters(JobClass::Hard).overruns == 1);
    scheduler.remove(0, 40, true, 60);
    CHECK(scheduler.counters(JobClass::Hard).late == 1);
    CHECK(scheduler.counters(JobClass::Hard).ended == 1);
    CHECK(scheduler.counters(JobClass::Hard).ran_ns == 40);
}

TEST_CASE(
    "A server gets its budget each period, moves its deadline when it is spent, and keeps no more than its share") {
    Scheduler scheduler({.jobs_max = 8, .depth = 8});
    scheduler.open_flow(1, flow_of(JobClass::BestEffort, 100, 0, 40));
    Assignment assignment;
    REQUIRE(scheduler.add(0, job_of(JobClass::BestEffort, 1), 1000) == Status::Ok);
    REQUIRE(scheduler.add(1, job_of(JobClass::BestEffort, 1), 1000) == Status::Ok);
    REQUIRE(scheduler.pick(1000, assignment));
    CHECK(assignment.place == 0);
    CHECK(assignment.rank == Rank{0, 1100});
    CHECK(assignment.grant_ns == 40);
    CHECK_FALSE(scheduler.pick(1000, assignment));  // one job has the server
    assignment = scheduler.spent(0, 42, 1042);      // the last segment went 2 over: a debt
    CHECK(assignment.rank == Rank{0, 1200});
    CHECK(assignment.grant_ns == 38);
    scheduler.remove(0, 52, true, 1052);
    REQUIRE(scheduler.pick(1052, assignment));
    CHECK(assignment.place == 1);
    CHECK(assignment.grant_ns == 28);
    scheduler.remove(1, 8, true, 1060);
    CHECK(scheduler.served_ns(1) == 60);
    // 20 left until 1200: kept when asked again at once (share allows 56), fresh when it would be more than the share.
    REQUIRE(scheduler.add(2, job_of(JobClass::BestEffort, 1), 1060) == Status::Ok);
    REQUIRE(scheduler.pick(1060, assignment));
    CHECK(assignment.grant_ns == 20);
    CHECK(assignment.rank == Rank{0, 1200});
    scheduler.remove(2, 0, false, 1060);
    REQUIRE(scheduler.add(2, job_of(JobClass::BestEffort, 1), 1160) == Status::Ok);
    REQUIRE(scheduler.pick(1160, assignment));
    CHECK(assignment.grant_ns == 40);
    CHECK(assignment.rank == Rank{0, 1260});
}

TEST_CASE("Text without a flow takes turns") {
    Scheduler scheduler({.jobs_max = 4, .depth = 4});
    REQUIRE(scheduler.add(0, job_of(JobClass::BestEffort, 0), 0) == Status::Ok);
    REQUIRE(scheduler.add(1, job_of(JobClass::BestEffort, 0), 0) == Status::Ok);
    Assignment first;
    Assignment second;
    REQUIRE(scheduler.pick(0, first));
    REQUIRE(scheduler.pick(0, second));
    CHECK(first.rank < second.rank);
    CHECK(first.grant_ns < kUnlimitedNs);
    first = scheduler.spent(0, first.grant_ns, first.grant_ns);
    CHECK(second.rank < first.rank);
}

TEST_CASE("Soft jobs that cannot be in time are dropped whole, oldest first, and counted; begun ones never") {
    Scheduler scheduler({.jobs_max = 8, .depth = 1});
    Job job = job_of(JobClass::Soft, 0, 100);
    job.cost_ns = 30;
    REQUIRE(scheduler.add(0, job, 0) == Status::Ok);
    CHECK(picks(scheduler, 0) == std::vector<std::size_t>{0});
    job.deadline_ns = 120;
    REQUIRE(scheduler.add(1, job, 0) == Status::Ok);
    job.deadline_ns = 110;
    REQUIRE(scheduler.add(2, job, 0) == Status::Ok);
    CHECK(scheduler.next_change_ns() == 81);
    std::size_t place = 99;
    CHECK_FALSE(scheduler.drop(80, place));
    REQUIRE(scheduler.drop(200, place));
    CHECK(place == 2);
    REQUIRE(scheduler.drop(200, place));
    CHECK(place == 1);
    CHECK_FALSE(scheduler.drop(200, place));
    CHECK(scheduler.counters(JobClass::Soft).dropped == 2);
    scheduler.remove(0, 30, true, 200);
    CHECK(scheduler.counters(JobClass::Soft).late == 1);
    CHECK(scheduler.next_change_ns() == kUnlimitedNs);
}

TEST_CASE("Text waits for its traffic budget, nobody else does") {
    Scheduler scheduler({.jobs_max = 8, .depth = 8, .traffic_bytes_per_s = 1'000'000'000, .traffic_burst_bytes = 100});
    Job text = job_of(JobClass::BestEffort, 0);
    text.traffic_bytes = 300;
    REQUIRE(scheduler.add(0, text, 0) == Status::Ok);
    REQUIRE(scheduler.add(1, text, 0) == Status::Ok);
    Job vision = job_of(JobClass::Soft, 0, 100'000);
    vision.traffic_bytes = 300;
    REQUIRE(scheduler.add(2, vision, 0) == Status::Ok);
    CHECK(picks(scheduler, 0) == std::vector<std::size_t>{2});  // 100 saved, 300 taken
    CHECK(scheduler.next_change_ns() == 202);
    CHECK(picks(scheduler, 150).empty());
    CHECK(picks(scheduler, 202) == std::vector<std::size_t>{0});
    CHECK(picks(scheduler, 300).empty());
    CHECK(picks(scheduler, 502 + 1) == std::vector<std::size_t>{1});
}

TEST_CASE("Jobs that break their contract are refused") {
    Scheduler scheduler({.jobs_max = 2, .flows_max = 1});
    scheduler.open_flow(3, flow_of(JobClass::Hard, 100, 100, 10));
    CHECK(scheduler.add(2, job_of(JobClass::BestEffort, 0), 0) == Status::Invalid);
    CHECK(scheduler.add(0, job_of(JobClass::Hard, 0), 0) == Status::Invalid);
    CHECK(scheduler.add(0, job_of(JobClass::Soft, 3), 0) == Status::Invalid);
    CHECK(scheduler.add(0, job_of(JobClass::Soft, 0), 0) == Status::Invalid);
    CHECK(scheduler.add(0, job_of(JobClass::Hard, 4), 0) == Status::Invalid);
    REQUIRE(scheduler.add(0, job_of(JobClass::Hard, 3), 0) == Status::Ok);
    CHECK(scheduler.add(0, job_of(JobClass::Hard, 3), 0) == Status::Invalid);
    CHECK_THROWS_AS(scheduler.open_flow(3, flow_of(JobClass::Hard, 1, 1, 1)), Error);
    CHECK_THROWS_AS(scheduler.open_flow(5, flow_of(JobClass::Hard, 1, 1, 1)), Error);
    scheduler.close_flow(3);
    Assignment assignment;
    REQUIRE(scheduler.pick(0, assignment));  // it goes on behind the flows
    CHECK(assignment.rank.tier == 1);
}

TEST_CASE("Scheduling allocates nothing") {
    Scheduler scheduler({.jobs_max = 16, .depth = 2});
    scheduler.open_flow(1, flow_of(JobClass::BestEffort, 100, 0, 40));
    const Job job = job_of(JobClass::BestEffort, 1);
    const std::uint64_t before = hot_path::allocation_count();
    {
        const hot_path::Scope hot;
        for (std::int64_t now = 0; now < 10'000; ++now) {
            const auto place = static_cast<std::size_t>(now % 16);
            static_cast<void>(scheduler.add(place, job, now));
            Assignment assignment;
            if (scheduler.pick(now, assignment)) {
                static_cast<void>(scheduler.spent(assignment.place, 50, now));
                scheduler.remove(assignment.place, 60, true, now);
            }
        }
    }
    CHECK(hot_path::allocation_count() == before);
    CHECK(scheduler.counters(JobClass::BestEffort).ended > 1000);
}

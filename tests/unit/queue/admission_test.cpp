// Admission beside closed cases and a simulation that shares no code with it: one unit of time after another, every
// combination of who blocks. Both ways: what is admitted is never late, what is refused is.
#include "queue/admission.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "unit/queue/simulation.hpp"

using namespace perceptd;
using namespace perceptd::queue;

namespace {

constexpr std::int64_t kMs = 1'000'000;

FlowRequest hard(std::int64_t period, std::int64_t deadline, std::int64_t cost, std::int64_t segment) {
    return {JobClass::Hard, period, deadline, cost, segment, 0};
}

/// Earliest deadline first by hand, a unit of time a step; task `early` (if any) comes one unit before the others.
bool is_late_when(const std::vector<FlowRequest>& tasks, std::size_t early, std::int64_t length) {
    struct State {
        std::int64_t next = 0, due = 0, left = 0, segment_left = 0;
    };
    std::vector<State> states(tasks.size());
    if (early < tasks.size()) {
        states[early].next = -1;
    }
    std::size_t running = tasks.size();
    for (std::int64_t now = -1; now < length; ++now) {
        for (std::size_t i = 0; i < tasks.size(); ++i) {
            if (states[i].left > 0 && states[i].due <= now) {
                return true;
            }
            if (states[i].next == now) {
                if (states[i].left > 0) {
                    return true;  // deadlines here are at most the period
                }
                states[i] = {now + tasks[i].period_ns, now + tasks[i].deadline_ns, tasks[i].cost_ns, 0};
            }
        }
        if (running == tasks.size() || states[running].segment_left == 0) {
            running = tasks.size();
            for (std::size_t i = 0; i < tasks.size(); ++i) {
                if (states[i].left > 0 && (running == tasks.size() || states[i].due < states[running].due)) {
                    running = i;
                }
            }
            if (running == tasks.size()) {
                continue;
            }
            states[running].segment_left = std::min(tasks[running].segment_ns, states[running].left);
        }
        --states[running].left;
        --states[running].segment_left;
    }
    return false;
}

bool can_be_late(const std::vector<FlowRequest>& tasks) {
    std::int64_t common = 1;
    for (const FlowRequest& task : tasks) {
        common = std::lcm(common, task.period_ns);
    }
    for (std::size_t early = 0; early <= tasks.size(); ++early) {
        if (is_late_when(tasks, early, 2 * common + 20)) {
            return true;
        }
    }
    return false;
}

std::vector<FlowRequest> random_tasks(std::mt19937_64& random) {
    constexpr std::int64_t kPeriods[] = {4, 5, 6, 8, 10, 12, 15, 20, 24, 30};
    const auto in = [&](std::int64_t from, std::int64_t to) {
        return from + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(to - from + 1));
    };
    std::vector<FlowRequest> tasks(static_cast<std::size_t>(in(2, 4)));
    for (FlowRequest& task : tasks) {
        const std::int64_t period = kPeriods[in(0, 9)];
        const std::int64_t cost = in(1, std::max<std::int64_t>(1, period / 2));
        task = hard(period, in(cost, period), cost, in(1, cost));
    }
    return tasks;
}

}  // namespace

TEST_CASE("What is admitted is never late and what is refused can be, over random sets") {
    std::mt19937_64 random(20'240'611);
    int admitted = 0;
    int refused = 0;
    for (int set = 0; set < 1500; ++set) {
        const std::vector<FlowRequest> tasks = random_tasks(random);
        const std::string misfit = misfit_of(tasks);
        CAPTURE(set, misfit);
        REQUIRE(can_be_late(tasks) == !misfit.empty());
        if (!misfit.empty()) {
            ++refused;
            continue;
        }
        ++admitted;
        // The daemon's own scheduler keeps them too, each task once as the one that came early, and with gaps.
        for (std::size_t early = 0; early <= tasks.size(); ++early) {
            std::vector<simulation::Source> sources;
            for (std::size_t i = 0; i < tasks.size(); ++i) {
                sources.push_back(
                    {.request = tasks[i], .first_ns = i == early ? -1 : 0, .jitter_ns = early == tasks.size() ? 3 : 0});
            }
            simulation::Simulation run(sources, {.jobs_max = 16, .flows_max = 8}, random());
            run.run_until(260);
            REQUIRE(run.hard_misses() == 0);
        }
    }
    CHECK(admitted > 400);
    CHECK(refused > 400);
}

TEST_CASE("The edges of the demand test are exact") {
    CHECK(misfit_of({hard(4, 4, 2, 1), hard(4, 4, 2, 1)}).empty());  // the whole device, nothing over
    CHECK_FALSE(misfit_of({hard(4, 4, 2, 1), hard(4, 4, 2, 1), hard(1000, 1000, 1, 1)}).empty());
    CHECK(misfit_of({hard(10, 3, 1, 1), hard(20, 20, 6, 3)}).empty());        // 1 + (3 - 1) = 3
    CHECK_FALSE(misfit_of({hard(10, 3, 1, 1), hard(20, 20, 6, 4)}).empty());  // 1 + (4 - 1) > 3
    // Work without a flow blocks everybody, whatever its deadline.
    CHECK(misfit_of({hard(10, 3, 1, 1)}, {.other_segment_ns = 3}).empty());
    CHECK_FALSE(misfit_of({hard(10, 3, 1, 1)}, {.other_segment_ns = 4}).empty());
}

TEST_CASE("Periods that divide nothing are still judged, and too many points are refused, not guessed") {
    const FlowRequest a = hard(9'999'991, 9'999'991, 4'000'000, 1'000'000);
    const FlowRequest b = hard(33'333'331, 33'333'331, 9'000'000, 2'000'000);
    CHECK(misfit_of({a, b}).empty());
    const std::vector<FlowRequest> uneven = {hard(10, 10, 1, 1), hard(1000, 1000, 10, 1)};
    CHECK(misfit_of(uneven).empty());
    CHECK(misfit_of(uneven, {.checks_max = 1}).find("points in time") != std::string::npos);
    // Wholly used, with a common multiple beyond 64 bits.
    const FlowRequest half = hard(3'000'000'000'022, 3'000'000'000'022, 1'500'000'000'011, 1);
    const FlowRequest rest = hard(3'500'000'000'006, 3'500'000'000'006, 1'750'000'000'003, 1);
    CHECK(misfit_of({half, rest}).find("common multiple") != std::string::npos);
}

TEST_CASE("A refusal says why and when to come back") {
    Admission admission({.flows_max = 3});
    FlowRequest vision = hard(33 * kMs, 33 * kMs, 20 * kMs, 2 * kMs);
    vision.job_class = JobClass::Soft;
    vision.ends_at_ns = 900 * kMs;
    const AdmissionVerdict first = admission.admit(vision, 0);
    REQUIRE(first.flow != 0);
    CHECK(first.reason.empty());
    CHECK(admission.utilisation() == Approx(20.0 / 33));

    const AdmissionVerdict second = admission.admit(vision, 100 * kMs);
    CHECK(second.flow == 0);
    CHECK(second.reason.find("1.212") != std::string::npos);
    REQUIRE(second.retry_after_ns.has_value());
    CHECK(*second.retry_after_ns == 800 * kMs);  // when the first one leaves

    FlowRequest endless = vision;
    endless.ends_at_ns = 0;
    endless.cost_ns = 5 * kMs;
    const AdmissionVerdict third = admission.admit(endless, 0);
    REQUIRE(third.flow != 0);
    FlowRequest large = endless;
    large.cost_ns = 30 * kMs;
    CHECK(admission.admit(large, 0).retry_after_ns == 1000 * kMs);  // nobody knows when the endless one leaves

    const AdmissionVerdict never = admission.admit(hard(10 * kMs, 5 * kMs, 6 * kMs, kMs), 0);
    CHECK(never.flow == 0);
    CHECK_FALSE(never.retry_after_ns.has_value());
    CHECK_FALSE(never.reason.empty());

    admission.release(first.flow);
    CHECK(admission.admit(vision, 0).flow != 0);
    CHECK(admission.admit(hard(1000 * kMs, 1000 * kMs, 1, 1), 0).flow != 0);
    const AdmissionVerdict full = admission.admit(hard(1000 * kMs, 1000 * kMs, 1, 1), 0);
    CHECK(full.reason.find("3 flows") != std::string::npos);
    CHECK(full.retry_after_ns.has_value());
}

TEST_CASE("Requests that make no sense are refused for good") {
    Admission admission;
    for (const FlowRequest& request :
         {hard(0, 1, 1, 1), hard(10, 10, 0, 1), hard(10, 10, 1, 0), hard(10, -1, 1, 1), hard(10, 10, 11, 1),
          hard(10, 10, 5, 6), hard(INT64_MAX, 10, 5, 5), hard(10, INT64_MAX, 5, 5), hard(10, 4, 5, 5)}) {
        const AdmissionVerdict verdict = admission.admit(request, 0);
        CHECK(verdict.flow == 0);
        CHECK_FALSE(verdict.reason.empty());
        CHECK_FALSE(verdict.retry_after_ns.has_value());
    }
    CHECK(admission.flow_count() == 0);
}

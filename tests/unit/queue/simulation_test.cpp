// Whole workloads in simulated time: no Hard job is ever late, text has its share, overload costs Soft jobs only.
#include "unit/queue/simulation.hpp"

#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "queue/admission.hpp"

using namespace perceptd::queue;
using simulation::Simulation;
using simulation::Source;

namespace {

constexpr std::int64_t kMs = 1'000'000;

Source periodic(JobClass job_class, std::int64_t period, std::int64_t cost, std::int64_t segment) {
    return {.request = {job_class, period, period, cost, segment, 0}};
}

/// A text generation that always has another pass, of 15 ms.
Source text(std::int64_t period, std::int64_t budget) {
    Source source{.request = {JobClass::BestEffort, period, period, budget, 2 * kMs, 0}};
    source.work_ns = 15 * kMs;
    source.is_backlogged = true;
    return source;
}

/// Sound, wake word, vision and two generations: 0.975 of the device.
std::vector<Source> glasses() {
    return {periodic(JobClass::Hard, 10 * kMs, 1 * kMs, 1 * kMs), periodic(JobClass::Hard, 20 * kMs, 2 * kMs, 1 * kMs),
            periodic(JobClass::Soft, 40 * kMs, 9 * kMs, 2 * kMs), text(50 * kMs, 20 * kMs), text(40 * kMs, 6 * kMs)};
}

std::string misfit(const std::vector<Source>& sources, std::int64_t other_segment_ns = 0) {
    std::vector<FlowRequest> requests;
    for (const Source& source : sources) {
        if (source.has_flow) {
            requests.push_back(source.request);
        }
    }
    return misfit_of(requests, {.other_segment_ns = other_segment_ns});
}

/// The largest distance of a generation's time from its share, relative.
double share_error(const Simulation& run, std::size_t source, double share, std::int64_t time_ns) {
    return static_cast<double>(run.outcome(source).ran_ns) / static_cast<double>(time_ns) / share - 1;
}

void run_glasses(std::int64_t hyperperiods) {
    constexpr std::int64_t kHyperperiodNs = 200 * kMs;
    const std::vector<Source> sources = glasses();
    REQUIRE(misfit(sources).empty());
    Simulation run(sources, {.jobs_max = 32, .flows_max = 8});
    run.run_until(hyperperiods * kHyperperiodNs);
    CHECK(run.hard_misses() == 0);
    CHECK(run.outcome(2).missed == 0);
    CHECK(run.outcome(2).dropped == 0);
    CHECK(run.outcome(0).done >= static_cast<std::uint64_t>(hyperperiods) * 20 - 1);
    // Nothing but the last 2.5 % of the device is theirs beyond the share.
    CHECK(share_error(run, 3, 0.40, hyperperiods * kHyperperiodNs) > -0.05);
    CHECK(share_error(run, 3, 0.40, hyperperiods * kHyperperiodNs) < 0.05);
    CHECK(share_error(run, 4, 0.15, hyperperiods * kHyperperiodNs) > -0.05);
    CHECK(run.idle_ns() == 0);
}

/// Random admitted sets of real lengths, with a generation in the gaps, in turn until `hyperperiods` are over.
void run_random(std::int64_t hyperperiods, std::int64_t of_each) {
    std::mt19937_64 random(7);
    constexpr std::int64_t kPeriods[] = {5, 10, 20, 40};
    std::int64_t done = 0;
    while (done < hyperperiods) {
        std::vector<Source> sources;
        const std::size_t count = 2 + random() % 3;
        for (std::size_t i = 0; i < count; ++i) {
            const std::int64_t period = kPeriods[random() % 4] * kMs;
            const std::int64_t cost = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(period / 3));
            Source source =
                periodic(random() % 2 == 0 ? JobClass::Hard : JobClass::Soft, period, cost, std::min(cost, 2 * kMs));
            source.request.deadline_ns -= static_cast<std::int64_t>(random() % 2) * (period - cost) / 2;
            source.first_ns = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(period));
            source.jitter_ns = random() % 2 == 0 ? 0 : period / 7;
            sources.push_back(source);
        }
        sources.push_back(text(40 * kMs, (1 + static_cast<std::int64_t>(random() % 12)) * kMs));
        if (random() % 2 == 0) {
            Source other = text(10 * kMs, 1);  // work that nobody admitted
            other.has_flow = false;
            other.is_foreground = random() % 2 == 0;
            sources.push_back(other);
        }
        if (!misfit(sources, sources.back().has_flow ? 0 : 2 * kMs).empty()) {
            continue;
        }
        Simulation run(sources, {.jobs_max = 32, .flows_max = 8}, random());
        run.run_until(of_each * 40 * kMs);
        for (std::size_t i = 0; i < count; ++i) {
            CAPTURE(done, i);
            REQUIRE(run.outcome(i).missed == 0);  // Soft flows were admitted as well
            REQUIRE(run.outcome(i).dropped == 0);
        }
        REQUIRE(run.hard_misses() == 0);
        const FlowRequest& server = sources[count].request;
        const double share = static_cast<double>(server.cost_ns) / static_cast<double>(server.period_ns);
        REQUIRE(share_error(run, count, share, of_each * 40 * kMs) > -0.05);
        done += of_each;
    }
}

}  // namespace

TEST_CASE("Glasses at 0.975 of the device: nobody late, text within 5 % of its share") {
    run_glasses(300);
}

TEST_CASE("No admitted set is ever late, beside text and work without a flow") {
    run_random(3000, 25);
}

TEST_CASE("No admitted set is late in a million hyperperiods", "[.nightly]") {
    run_glasses(1'000'000);
    run_random(1'000'000, 500);
}

TEST_CASE("Overload drops whole Soft jobs; Hard jobs and the text's share do not notice") {
    std::vector<Source> sources = glasses();
    sources[4].request.cost_ns = 4 * kMs;  // room for the segment that the flood may be in
    Source flood = periodic(JobClass::Soft, 10 * kMs, 9 * kMs, 2 * kMs);  // 0.9 of the device that nobody admitted
    flood.has_flow = false;
    flood.date_ns = 30 * kMs;
    sources.push_back(flood);
    REQUIRE(misfit(sources, 2 * kMs).empty());
    Simulation run(sources, {.jobs_max = 64, .flows_max = 8});
    run.run_until(20'000 * kMs);
    CHECK(run.hard_misses() == 0);
    CHECK(run.outcome(2).missed == 0);
    CHECK(share_error(run, 3, 0.40, 20'000 * kMs) > -0.05);
    CHECK(share_error(run, 4, 0.10, 20'000 * kMs) > -0.05);
    CHECK(run.outcome(5).dropped > 1000);
    CHECK(run.outcome(5).dropped == run.scheduler().counters(JobClass::Soft).dropped);
}

TEST_CASE("A Hard flow that takes longer than it said harms itself alone") {
    std::vector<Source> sources = glasses();
    sources[1].work_ns = 30 * kMs;  // said 2 ms
    Simulation run(sources, {.jobs_max = 4096, .flows_max = 8});
    run.run_until(4'000 * kMs);
    CHECK(run.outcome(0).missed == 0);
    CHECK(run.outcome(2).missed == 0);
    CHECK(share_error(run, 3, 0.40, 4'000 * kMs) > -0.05);
    CHECK(run.scheduler().counters(JobClass::Hard).overruns > 150);
}

TEST_CASE("Background work runs in the gaps of foreground work only") {
    std::vector<Source> sources = {periodic(JobClass::Soft, 10 * kMs, 4 * kMs, 2 * kMs), text(10 * kMs, kMs),
                                   text(10 * kMs, kMs)};
    sources[1].has_flow = false;
    sources[1].is_backlogged = false;
    sources[1].request.period_ns = 100 * kMs;
    sources[2].has_flow = false;
    sources[2].is_foreground = false;
    Simulation run(sources, {.jobs_max = 32});
    run.run_until(10'000 * kMs);
    // 0.4 and 0.15 for the foreground, the rest is the background's to the last segment.
    CHECK(run.outcome(1).worst_response_ns < 32 * kMs);
    CHECK(static_cast<double>(run.outcome(2).ran_ns) / (10'000.0 * kMs) == Approx(0.45).margin(0.01));
    CHECK(run.idle_ns() == 0);
}

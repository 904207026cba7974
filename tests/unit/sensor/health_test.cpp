// Health: the verdict follows the samples, not the wish.
#include "sensor/health.hpp"

#include <catch2/catch.hpp>

using namespace perceptd;
using namespace perceptd::sensor;

TEST_CASE("a sensor is streaming only while samples arrive") {
    StreamCounters counters;
    const std::int64_t on_ns = 100 * kNsPerSecond;
    CHECK(health_of(0, true, counters, on_ns) == Health::Off);
    CHECK(health_of(on_ns, true, counters, on_ns + kFirstSampleNs) == Health::Starting);
    CHECK(health_of(on_ns, true, counters, on_ns + kFirstSampleNs + 1) == Health::Failed);
    counters.delivered_count = 1;
    counters.last_at_ns = on_ns - 1;  // left over from an earlier run
    CHECK(health_of(on_ns, true, counters, on_ns + kNsPerMs) == Health::Starting);
    counters.last_at_ns = on_ns + kNsPerSecond;
    CHECK(health_of(on_ns, true, counters, on_ns + kNsPerSecond + kSilenceNs) == Health::Streaming);
    CHECK(health_of(on_ns, true, counters, on_ns + kNsPerSecond + kSilenceNs + 1) == Health::Silent);
}

TEST_CASE("a recording waits for its readers and is not silent for that") {
    StreamCounters counters;
    CHECK(health_of(1, false, counters, kFirstSampleNs) == Health::Starting);
    CHECK(health_of(1, false, counters, kFirstSampleNs + 2) == Health::Failed);
    counters.delivered_count = 1;
    counters.last_at_ns = 5;
    CHECK(health_of(1, false, counters, 1000 * kNsPerSecond) == Health::Streaming);
}

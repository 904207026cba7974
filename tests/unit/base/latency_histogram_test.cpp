// LatencyHistogram against sorted samples: the nearest-rank quantile, within one bucket.
#include "base/latency_histogram.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

using perceptd::LatencyHistogram;

TEST_CASE("quantiles are at most one sixteenth above the sorted samples' nearest rank") {
    std::mt19937_64 random(7);
    for (const double spread : {1.0, 10.0, 30.0}) {
        LatencyHistogram histogram;
        std::vector<std::int64_t> samples;
        std::uniform_real_distribution<double> exponent(0, spread);
        for (int i = 0; i < 10'000; ++i) {
            samples.push_back(static_cast<std::int64_t>(std::exp2(exponent(random))));
            histogram.record(samples.back());
        }
        std::sort(samples.begin(), samples.end());
        CHECK(histogram.count() == samples.size());
        for (const double q : {0.0001, 0.25, 0.5, 0.9, 0.99, 1.0}) {
            const auto rank = static_cast<std::size_t>(std::ceil(q * 10'000)) - 1;
            const std::int64_t found_ns = histogram.quantile_ns(q);
            CHECK(found_ns >= samples[rank]);
            CHECK(static_cast<double>(found_ns) <= static_cast<double>(samples[rank]) * (1 + 1.0 / 16));
        }
    }
}

TEST_CASE("every duration has a bucket") {
    LatencyHistogram histogram;
    CHECK(histogram.quantile_ns(0.5) == 0);
    histogram.record(INT64_MIN);
    CHECK(histogram.quantile_ns(1) == 0);
    histogram.record(INT64_MAX);
    CHECK(histogram.quantile_ns(1) == (std::int64_t{1} << 40) - 1);
    CHECK(histogram.count() == 2);
}

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <thread>

#include "base/spsc_ring.hpp"

namespace {

struct Record {
    std::uint64_t number = 0;
    std::uint64_t check = 0;
};

constexpr std::uint64_t kRecords = 1'000'000;

constexpr std::uint64_t checked(std::uint64_t number) {
    return number * 0x9e3779b97f4a7c15u ^ 0x5bd1e995u;
}

}  // namespace

TEST_CASE("a ring gives every record once, whole and in order", "[ring]") {
    for (const std::uint32_t seed : {1u, 2u, 3u}) {
        perceptd::SpscRing<Record, 8> ring;  // small: full and empty are the common states
        std::uint64_t refused_count = 0;
        std::thread producer([&] {
            std::mt19937 random(seed);
            for (std::uint64_t number = 0; number < kRecords;) {
                if (ring.push({number, checked(number)})) {
                    ++number;
                } else {
                    ++refused_count;
                    std::this_thread::yield();
                }
                if (random() % 64 == 0) {
                    std::this_thread::yield();
                }
            }
        });
        std::mt19937 random(seed + 100);
        std::uint64_t wrong_count = 0;
        for (std::uint64_t number = 0; number < kRecords;) {
            Record record;
            if (!ring.pop(record)) {
                std::this_thread::yield();
                continue;
            }
            wrong_count += record.number != number || record.check != checked(number);
            ++number;
            if (random() % 64 == 0) {
                std::this_thread::yield();
            }
        }
        producer.join();
        REQUIRE(wrong_count == 0);
        REQUIRE(ring.size() == 0);
    }
}

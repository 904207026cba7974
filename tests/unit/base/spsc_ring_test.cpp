#include "base/spsc_ring.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>

using perceptd::SpscRing;

TEST_CASE("a full ring rejects the newest record and keeps the old ones") {
    SpscRing<int, 4> ring;
    for (int i = 0; i < 4; ++i) {
        REQUIRE(ring.push(i));
    }
    REQUIRE_FALSE(ring.push(4));
    int value = -1;
    for (int i = 0; i < 4; ++i) {
        REQUIRE(ring.pop(value));
        REQUIRE(value == i);
    }
    REQUIRE_FALSE(ring.pop(value));
    REQUIRE(value == 3);
}

TEST_CASE("two threads pass every record once and in order") {
    constexpr std::uint64_t kCount = 300'000;
    SpscRing<std::uint64_t, 64> ring;
    std::thread producer([&] {
        for (std::uint64_t i = 0; i < kCount;) {
            if (ring.push(i)) {
                ++i;
            } else {
                std::this_thread::yield();
            }
        }
    });
    std::uint64_t wrong = 0;
    for (std::uint64_t expected = 0; expected < kCount;) {
        std::uint64_t value = 0;
        if (ring.pop(value)) {
            wrong += value == expected ? 0 : 1;
            ++expected;
        } else {
            std::this_thread::yield();
        }
    }
    producer.join();
    REQUIRE(wrong == 0);
}

#include "base/hot_path.hpp"

#include <catch2/catch.hpp>
#include <memory>

#include "base/rt_thread.hpp"

// AddressSanitizer brings its own operator new, so there is no counter to test in that build.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PERCEPTD_SANITIZER_ALLOCATES
#endif
#endif

#ifndef PERCEPTD_SANITIZER_ALLOCATES
TEST_CASE("allocations are counted on hot threads and nowhere else") {
    const auto before = perceptd::hot_path::allocation_count();
    auto outside = std::make_unique<int>(1);
    REQUIRE(perceptd::hot_path::allocation_count() == before);
    {
        const perceptd::RtThread thread({.name = "hot"},
                                        [](const std::atomic<bool>&) {
                                            auto* volatile memory = new int(3);
                                            delete memory;
                                        },
                                        {});
    }
    REQUIRE(perceptd::hot_path::allocation_count() == before + 1);
}
#endif

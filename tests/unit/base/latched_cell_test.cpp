#include "base/latched_cell.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>

namespace {
struct Record {
    std::uint64_t a = 0;
    std::uint64_t twice_a = 0;
    std::uint64_t thrice_a = 0;
};
}  // namespace

TEST_CASE("a reader never sees a torn record nor an older one after a newer one") {
    perceptd::LatchedCell<Record> cell;
    constexpr std::uint64_t kStores = 200'000;
    std::thread writer([&] {
        for (std::uint64_t i = 1; i <= kStores; ++i) {
            cell.store({i, 2 * i, 3 * i});
        }
    });
    std::uint64_t torn = 0;
    std::uint64_t backward = 0;
    std::uint64_t last = 0;
    while (last < kStores) {
        const Record record = cell.load();
        torn += record.twice_a == 2 * record.a && record.thrice_a == 3 * record.a ? 0 : 1;
        backward += record.a < last ? 1 : 0;
        last = record.a;
    }
    writer.join();
    REQUIRE(torn == 0);
    REQUIRE(backward == 0);
}

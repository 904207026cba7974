#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "base/latched_cell.hpp"

namespace {

/// Every word is a function of the first: a torn read is visible.
struct Value {
    std::array<std::uint64_t, 9> words{};
};

Value value_of(std::uint64_t number) {
    Value value;
    for (std::size_t i = 0; i < value.words.size(); ++i) {
        value.words[i] = number * (2 * i + 1);
    }
    return value;
}

}  // namespace

TEST_CASE("readers of a latched cell see whole values that never go back", "[latched cell]") {
    constexpr std::uint64_t kStores = 200'000;
    perceptd::LatchedCell<Value> cell;
    std::atomic<bool> ended{false};
    std::atomic<std::uint64_t> torn_count{0};
    std::atomic<std::uint64_t> backward_count{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] {
            std::uint64_t newest = 0;
            do {
                const Value seen = cell.load();
                torn_count += seen.words != value_of(seen.words[0]).words;
                backward_count += seen.words[0] < newest;
                newest = seen.words[0];
            } while (!ended.load(std::memory_order_acquire));
        });
    }
    for (std::uint64_t number = 1; number <= kStores; ++number) {
        cell.store(value_of(number));
        if (number % 512 == 0) {
            std::this_thread::yield();
        }
    }
    ended.store(true, std::memory_order_release);
    for (std::thread& reader : readers) {
        reader.join();
    }
    REQUIRE(torn_count == 0);
    REQUIRE(backward_count == 0);
    REQUIRE(cell.load().words == value_of(kStores).words);
}

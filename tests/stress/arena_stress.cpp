#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "arena/arena.hpp"
#include "arena/heap.hpp"
#include "arena/lease.hpp"
#include "base/spsc_ring.hpp"

using perceptd::SpscRing;
using perceptd::arena::Arena;
using perceptd::arena::Lease;
using perceptd::arena::SlotRef;

namespace {

constexpr std::size_t kReaders = 3;
constexpr std::uint64_t kWrites = 150'000;
constexpr std::size_t kWords = 32;

struct Reader {
    SpscRing<SlotRef, 16> incoming;
    std::atomic<std::uint64_t> wrong_count{0};
    std::atomic<std::uint64_t> read_count{0};
};

bool is_whole(std::span<const std::byte> slot) {
    std::array<std::uint64_t, kWords> words;
    std::memcpy(words.data(), slot.data(), sizeof(words));
    return std::all_of(words.begin(), words.end(), [&](std::uint64_t word) { return word == words[0]; });
}

/// Holds up to five leases at a time and ends them in random order: no slot may change under a lease.
void read_slots(Arena& arena, Reader& reader, std::uint32_t seed, const std::atomic<bool>& ended) {
    std::mt19937 random(seed);
    std::vector<Lease> held;
    SlotRef ref;
    for (;;) {
        const bool last = ended.load(std::memory_order_acquire);
        if (reader.incoming.pop(ref)) {
            held.push_back(arena.adopt(ref));
            if (random() % 4 == 0) {
                held.push_back(held.back().share());
            }
        } else if (last) {
            break;
        } else {
            std::this_thread::yield();
        }
        while (held.size() > 4 || (!held.empty() && random() % 3 == 0)) {
            const std::size_t index = random() % held.size();
            reader.wrong_count += !is_whole(held[index].bytes());
            ++reader.read_count;
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
        }
    }
}

}  // namespace

TEST_CASE("slots never change under a lease and all come back", "[arena]") {
    const auto heap = perceptd::arena::make_heap("memfd");
    Arena arena(*heap, {.label = "stress", .slot_count = 12, .slot_bytes = kWords * sizeof(std::uint64_t)});
    arena.seal();
    std::array<Reader, kReaders> readers;
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kReaders; ++i) {
        threads.emplace_back([&, i] { read_slots(arena, readers[i], static_cast<std::uint32_t>(i + 1), ended); });
    }
    for (std::uint64_t number = 1; number <= kWrites;) {
        Lease lease = arena.acquire();
        if (!lease) {
            arena.announce_waiting();
            std::this_thread::yield();
            continue;
        }
        std::array<std::uint64_t, kWords> words;
        words.fill(number);
        std::memcpy(lease.bytes().data(), words.data(), sizeof(words));
        lease.publish();
        for (Reader& reader : readers) {
            Lease shared = lease.share();
            if (reader.incoming.push(shared.ref())) {
                static_cast<void>(shared.detach());
            }
        }
        ++number;
    }
    ended.store(true, std::memory_order_release);
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const Reader& reader : readers) {
        REQUIRE(reader.wrong_count == 0);
        REQUIRE(reader.read_count > 0);
    }
    REQUIRE(arena.free_count() == arena.slot_count());
}

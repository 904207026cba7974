// SoundShelf: every window names exactly the blocks that overlap it, and no lease is left behind.
#include "sound_shelf.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "arena/heap.hpp"

using namespace perceptd;

namespace {

WindowRecord window(std::int64_t from_ns, std::int64_t to_ns) {
    WindowRecord record;
    record.plan.own_from_ns = from_ns;
    record.plan.own_to_ns = to_ns;
    return record;
}

}  // namespace

TEST_CASE("windows name the blocks that overlap them, as an interval test says") {
    const auto heap = arena::make_heap("memfd");
    arena::Arena arena(*heap, {.label = "audio", .slot_count = 200, .slot_bytes = 64});
    std::mt19937 random(5);
    {
        SoundShelf shelf(&arena);
        struct Block {
            std::uint32_t slot_index;
            std::int64_t first_ns, end_ns;
        };
        std::vector<Block> blocks;
        std::int64_t time_ns = 0;
        for (int i = 0; i < 80; ++i) {
            arena::Lease lease = arena.acquire();
            REQUIRE(lease);
            lease.publish();
            const std::int64_t end_ns = time_ns + 5 + random() % 20;
            blocks.push_back({lease.ref().slot_index, time_ns, end_ns});
            CHECK(shelf.put(lease, 64, time_ns, end_ns));
            time_ns = end_ns;
        }
        std::int64_t from_ns = INT64_MIN;
        while (from_ns < time_ns) {
            const std::int64_t to_ns = std::max<std::int64_t>(from_ns, 0) + 1 + random() % 60;
            WindowRecord record = window(from_ns, to_ns);
            CHECK(shelf.fill(record));
            std::vector<std::uint32_t> expected, found;
            for (const Block& block : blocks) {
                if (block.first_ns < to_ns && block.end_ns > from_ns) {
                    expected.push_back(block.slot_index);
                }
            }
            for (std::uint32_t i = 0; i < record.sound_count; ++i) {
                found.push_back(record.sounds[i].block.slot.slot_index);
            }
            CHECK(found == expected);
            release(record, {.audio = &arena});
            from_ns = to_ns;
        }
        CHECK(arena.free_count() == 200);
    }
}

TEST_CASE("a full shelf lets its oldest block go, a crowded window says that it lacks some") {
    const auto heap = arena::make_heap("memfd");
    arena::Arena arena(*heap, {.label = "audio", .slot_count = 100, .slot_bytes = 64});
    {
        SoundShelf shelf(&arena);
        for (int i = 0; i < 60; ++i) {
            arena::Lease lease = arena.acquire();
            lease.publish();
            CHECK(shelf.put(lease, 64, i, i + 1) == (i < 50));
        }
        CHECK(arena.free_count() == 50);
        WindowRecord record = window(0, 100);
        CHECK_FALSE(shelf.fill(record));
        CHECK(record.sound_count == record.sounds.size());
        CHECK(record.sounds[0].first_frame_ns == 10);
        release(record, {.audio = &arena});
    }
    CHECK(arena.free_count() == 100);
    SoundShelf none(nullptr);
    WindowRecord record = window(0, 100);
    CHECK(none.fill(record));
}

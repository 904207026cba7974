#include "arena/arena.hpp"

#include <poll.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "arena/lease.hpp"
#include "base/error.hpp"

using namespace perceptd::arena;

namespace {
std::unique_ptr<Arena> make_arena(std::uint32_t slot_count, std::size_t slot_bytes = 100) {
    return std::make_unique<Arena>(*make_heap("memfd"), Arena::Options{"test", slot_count, slot_bytes, Writer::Daemon});
}
std::uint64_t generation_seen_by_client(const Arena& arena, std::uint32_t slot_index) {
    const perceptd::MappedRegion header(arena.header_fd(), 4096, perceptd::MapAccess::Read);
    percept_arena_header table;
    std::memcpy(&table, header.data(), sizeof(table));
    return table.generation[slot_index];
}
}  // namespace

TEST_CASE("a slot is reused only after its last lease") {
    const auto arena = make_arena(2);
    Lease first = arena->acquire();
    Lease second = arena->acquire();
    REQUIRE(first);
    REQUIRE(second);
    REQUIRE_FALSE(arena->acquire());
    Lease shared = first.share();
    first.end();
    REQUIRE_FALSE(arena->acquire());
    shared.end();
    REQUIRE(arena->free_count() == 1);
    REQUIRE(arena->acquire().ref().slot_index == 0);
}

TEST_CASE("the generation is odd while written, even while readable, and moves on with each life") {
    const auto arena = make_arena(2);
    Lease lease = arena->acquire();
    const std::uint64_t written = lease.ref().generation;
    REQUIRE(written % 2 == 1);
    REQUIRE(generation_seen_by_client(*arena, 0) == written);
    lease.publish();
    REQUIRE(lease.ref().generation == written + 1);
    REQUIRE(generation_seen_by_client(*arena, 0) == written + 1);
    lease.end();
    REQUIRE(generation_seen_by_client(*arena, 0) == written + 2);
    REQUIRE(arena->acquire().ref().generation == written + 2);
    REQUIRE(generation_seen_by_client(*arena, 0) == written + 2);  // released unpublished: still odd
}

TEST_CASE("a detached reference keeps its count until it is adopted") {
    const auto arena = make_arena(2);
    SlotRef ref;
    {
        Lease lease = arena->acquire();
        lease.publish();
        ref = lease.detach();
    }
    REQUIRE(arena->free_count() == 1);
    { const Lease lease = arena->adopt(ref); }
    REQUIRE(arena->free_count() == 2);
}

TEST_CASE("a waiting writer is woken by the next release") {
    const auto arena = make_arena(2);
    Lease first = arena->acquire();
    Lease second = arena->acquire();
    pollfd waiting{arena->release_fd(), POLLIN, 0};
    first.end();
    REQUIRE(::poll(&waiting, 1, 0) == 0);  // nobody waits: no system call was made
    arena->announce_waiting();
    second.end();
    REQUIRE(::poll(&waiting, 1, 0) == 1);
}

TEST_CASE("all 256 slots can be leased and ended from other threads without loss") {
    const auto arena = make_arena(PERCEPT_ARENA_SLOTS_MAX, 16);
    for (int round = 0; round < 20; ++round) {
        std::vector<Lease> leases;
        while (Lease lease = arena->acquire()) {
            lease.publish();
            leases.push_back(std::move(lease));
        }
        REQUIRE(leases.size() == PERCEPT_ARENA_SLOTS_MAX);
        std::vector<Lease> copies;
        for (Lease& lease : leases) {
            copies.push_back(lease.share());
        }
        std::thread one([&] { leases.clear(); });
        std::thread two([&] { copies.clear(); });
        one.join();
        two.join();
        REQUIRE(arena->free_count() == PERCEPT_ARENA_SLOTS_MAX);
    }
}

TEST_CASE("a bad shape is refused with the reason") {
    REQUIRE_THROWS_AS(make_arena(1), perceptd::Error);
    REQUIRE_THROWS_AS(make_arena(257), perceptd::Error);
    REQUIRE_THROWS_AS(make_arena(2, 0), perceptd::Error);
}

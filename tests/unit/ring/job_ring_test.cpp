#include "queue/job_ring.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <random>

#include "failure.hpp"
#include "percept/percept.h"
#include "ring_pair.hpp"

using namespace perceptd;
using ring_test::RingPair;

namespace {

percept_job_entry job(std::uint64_t id, std::uint8_t bindings = 0) {
    percept_job_entry entry{.job_id = id, .program_id = bindings == 0 ? 0U : 7U, .input_count = bindings};
    for (std::uint8_t i = 0; i < bindings; ++i) {
        entry.bindings[i] = {.buffer_id = i + 1U, .offset_bytes = id, .size_bytes = id * 3};
    }
    return entry;
}

bool is_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

TEST_CASE("jobs come out as they went in and completions find their way back", "[ring]") {
    RingPair pair;
    percept_job_entry entry;
    percept_job_completion completion;
    for (std::uint64_t id = 1; id <= 5 * PERCEPT_JOB_RING_ENTRIES; ++id) {
        const auto bindings = static_cast<std::uint8_t>(id % (PERCEPT_JOB_BINDINGS_MAX + 1));
        REQUIRE(pair.client().submit(job(id, bindings)) == PERCEPT_OK);
        REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
        REQUIRE(entry.job_id == id);
        REQUIRE(entry.input_count == bindings);
        for (std::uint8_t i = 0; i < bindings; ++i) {
            REQUIRE(entry.bindings[i].buffer_id == i + 1U);
            REQUIRE(entry.bindings[i].offset_bytes == id);
            REQUIRE(entry.bindings[i].size_bytes == id * 3);
        }
        REQUIRE(pair.daemon().in_flight_count() == 1);
        REQUIRE(pair.daemon().complete({.job_id = id, .status = PERCEPT_JOB_DONE, .finished_ns = 5}) == RingResult::Ok);
        REQUIRE(pair.client().next(0, completion) == PERCEPT_OK);
        REQUIRE(completion.job_id == id);
        REQUIRE(completion.finished_ns == 5);
    }
    REQUIRE(pair.daemon().take(entry) == RingResult::Nothing);
    REQUIRE(pair.client().next(0, completion) == PERCEPT_TIMEOUT);
}

TEST_CASE("a full ring takes no more until completions are read", "[ring]") {
    RingPair pair;
    percept_job_entry entry;
    percept_job_completion completion;
    for (std::uint64_t id = 1; id <= PERCEPT_JOB_RING_ENTRIES; ++id) {
        REQUIRE(pair.client().submit(job(id)) == PERCEPT_OK);
    }
    REQUIRE(pair.client().submit(job(9999)) == PERCEPT_TIMEOUT);
    for (std::uint64_t id = 1; id <= PERCEPT_JOB_RING_ENTRIES; ++id) {
        REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
    }
    // Taken but unanswered: there is no room for another answer yet.
    REQUIRE(pair.client().submit(job(9999)) == PERCEPT_TIMEOUT);
    REQUIRE(pair.daemon().complete({.job_id = 1}) == RingResult::Ok);
    REQUIRE(pair.client().submit(job(9999)) == PERCEPT_TIMEOUT);
    REQUIRE(pair.client().next(0, completion) == PERCEPT_OK);
    REQUIRE(pair.client().submit(job(9999)) == PERCEPT_OK);
    REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
    REQUIRE(entry.job_id == 9999);
}

TEST_CASE("a client that goes beyond its completions waits, whatever it writes", "[ring]") {
    RingPair pair;
    percept_job_entry entry;
    for (std::uint64_t place = 0; place < PERCEPT_JOB_RING_ENTRIES; ++place) {
        pair.raw().submissions[place].sequence = place + 1;
        REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
    }
    pair.raw().submissions[0].sequence = PERCEPT_JOB_RING_ENTRIES + 1;
    REQUIRE(pair.daemon().take(entry) == RingResult::Nothing);
    REQUIRE(pair.daemon().in_flight_count() == PERCEPT_JOB_RING_ENTRIES);
}

TEST_CASE("every impossible stamp and count is told, and nothing is read for it", "[ring]") {
    std::mt19937_64 random(7);
    percept_job_entry entry;
    for (int round = 0; round < 200; ++round) {
        RingPair pair;
        const std::uint64_t good_count = random() % 3;
        for (std::uint64_t id = 1; id <= good_count; ++id) {
            REQUIRE(pair.client().submit(job(id)) == PERCEPT_OK);
            REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
        }
        std::uint64_t stamp = random() >> (random() % 64);
        if (stamp == 0 || stamp == good_count + 1) {
            stamp = UINT64_MAX;
        }
        pair.raw().submissions[good_count].sequence = stamp;
        REQUIRE(pair.daemon().take(entry) == RingResult::Broken);
    }
    for (const std::uint64_t head : {std::uint64_t{257}, UINT64_MAX, std::uint64_t{1} << 63}) {
        RingPair pair;
        for (std::uint64_t id = 1; id <= PERCEPT_JOB_RING_ENTRIES; ++id) {
            REQUIRE(pair.client().submit(job(id)) == PERCEPT_OK);
            REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
            REQUIRE(pair.daemon().complete({.job_id = id}) == RingResult::Ok);
        }
        pair.raw().submissions[0].sequence = PERCEPT_JOB_RING_ENTRIES + 1;
        REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
        pair.raw().completion_head = head;
        REQUIRE(pair.daemon().complete({.job_id = 1}) == RingResult::Broken);
    }
}

TEST_CASE("the form of an entry is checked", "[ring]") {
    CHECK(queue::fault_of(job(1)) == nullptr);
    CHECK(queue::fault_of(job(1, 6)) == nullptr);
    percept_job_entry entry = job(1, 6);
    entry.output_count = 250;  // with the inputs exactly 256: a sum in 8 bits would be 0
    CHECK(queue::fault_of(entry) != nullptr);
    entry = job(1, 4);
    entry.job_class = 3;
    CHECK(queue::fault_of(entry) != nullptr);
    entry = job(1, 4);
    entry.flags = 1;
    CHECK(queue::fault_of(entry) != nullptr);
    entry = job(1, 4);
    entry.program_id = 0;
    CHECK(queue::fault_of(entry) != nullptr);
    RingPair pair;
    entry = job(1, 6);
    entry.output_count = 1;
    CHECK_THROWS_AS(pair.client().submit(entry), percept::Failure);
}

TEST_CASE("only a sleeper is rung", "[ring]") {
    RingPair pair;
    percept_job_entry entry;
    REQUIRE(pair.client().submit(job(1)) == PERCEPT_OK);
    CHECK_FALSE(is_readable(pair.daemon().submission_bell()));
    REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
    pair.daemon().announce_sleep();
    REQUIRE(pair.client().submit(job(2)) == PERCEPT_OK);
    CHECK(is_readable(pair.daemon().submission_bell()));
}

TEST_CASE("a client cannot stop the daemon by its bells", "[ring]") {
    queue::JobRing ring("test");
    auto end = ring.take_client_end();
    // Filled up and made blocking, as far as a client can.
    ::fcntl(end.submission_bell.borrow(), F_SETFL, 0);
    ::fcntl(end.completion_bell.borrow(), F_SETFL, 0);
    const std::uint64_t most = UINT64_MAX - 1;
    REQUIRE(::write(end.submission_bell.borrow(), &most, sizeof(most)) == sizeof(most));
    CHECK(::write(end.completion_bell.borrow(), &most, 1) == -1);
    MappedRegion mapping(end.memory.borrow(), sizeof(percept_job_ring), MapAccess::ReadWrite);
    auto& raw = *reinterpret_cast<percept_job_ring*>(mapping.data());
    percept_job_entry entry;
    // More rings than a pipe holds: the client says that it sleeps again and again and never reads.
    for (std::uint64_t id = 0; id < 70'000; ++id) {
        raw.submissions[id % PERCEPT_JOB_RING_ENTRIES].sequence = id + 1;
        REQUIRE(ring.take(entry) == RingResult::Ok);
        raw.completion_head = id;
        raw.client_sleeps = 1;
        REQUIRE(ring.complete({.job_id = id}) == RingResult::Ok);
    }
    end.completion_bell.reset();
    raw.submissions[70'000 % PERCEPT_JOB_RING_ENTRIES].sequence = 70'001;
    REQUIRE(ring.take(entry) == RingResult::Ok);
    raw.client_sleeps = 1;
    CHECK(ring.complete({.job_id = 1}) == RingResult::Ok);
}

TEST_CASE("the memory can neither shrink nor grow, and a hole in it breaks only its own ring", "[ring]") {
    RingPair pair;
    CHECK(::ftruncate(pair.memory(), 4096) != 0);
    CHECK(::ftruncate(pair.memory(), 1 << 20) != 0);
    percept_job_entry entry;
    for (std::uint64_t id = 1; id <= PERCEPT_JOB_RING_ENTRIES; ++id) {
        REQUIRE(pair.client().submit(job(id)) == PERCEPT_OK);
        REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
        REQUIRE(pair.daemon().complete({.job_id = id}) == RingResult::Ok);
    }
    REQUIRE(::fallocate(pair.memory(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(percept_job_ring)) == 0);
    CHECK(pair.daemon().take(entry) != RingResult::Ok);
}

TEST_CASE("a client learns that the daemon is gone", "[ring]") {
    RingPair pair;
    REQUIRE(pair.client().submit(job(1)) == PERCEPT_OK);
    percept_job_entry entry;
    REQUIRE(pair.daemon().take(entry) == RingResult::Ok);
    REQUIRE(pair.daemon().complete({.job_id = 1}) == RingResult::Ok);
    pair.take_daemon().reset();
    percept_job_completion completion;
    REQUIRE(pair.client().next(-1, completion) == PERCEPT_OK);  // what was answered is not lost
    CHECK_THROWS_AS(pair.client().next(-1, completion), percept::Failure);
}

TEST_CASE("a client refuses descriptors that are no ring", "[ring]") {
    const auto open_with = [](int fd) {
        percept::JobRing(percept::UniqueFd(fd), percept::UniqueFd(), percept::UniqueFd(), 0);
    };
    CHECK_THROWS_AS(open_with(::open("/dev/null", O_RDWR | O_CLOEXEC)), percept::Failure);
    const int zeros = ::memfd_create("zeros", MFD_CLOEXEC);
    REQUIRE(::ftruncate(zeros, sizeof(percept_job_ring)) == 0);
    CHECK_THROWS_AS(open_with(zeros), percept::Failure);
}

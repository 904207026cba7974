// A client that writes whatever it likes into its job ring while the daemon takes submissions and answers them.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/mapped_region.hpp"
#include "queue/job_ring.hpp"

using namespace perceptd;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ::signal(SIGPIPE, SIG_IGN);
    queue::JobRing ring("fuzz");
    const auto end = ring.take_client_end();
    const MappedRegion mapping(end.memory.borrow(), sizeof(percept_job_ring), MapAccess::ReadWrite);
    percept_job_entry entry;
    bool is_broken = false;
    while (size >= 4 && !is_broken) {
        // Where (in words of 8 bytes), how much, and whether the daemon answers.
        const std::size_t place = (data[0] | std::size_t{data[1]} << 8) * 8 % sizeof(percept_job_ring);
        const std::size_t wanted = 1 + data[2] % 64;
        const bool answers = data[3] % 2 != 0;
        data += 4;
        size -= 4;
        const std::size_t count = std::min({wanted, size, sizeof(percept_job_ring) - place});
        std::memcpy(mapping.data() + place, data, count);
        data += count;
        size -= count;
        RingResult result = ring.take(entry);
        if (result == RingResult::Ok) {
            const bool is_well_formed = queue::fault_of(entry) == nullptr;
            if (is_well_formed && entry.input_count + entry.output_count > int{PERCEPT_JOB_BINDINGS_MAX}) {
                __builtin_trap();
            }
        }
        if (result == RingResult::Ok && answers) {
            result = ring.complete({.job_id = entry.job_id});
        }
        if (ring.in_flight_count() > PERCEPT_JOB_RING_ENTRIES) {
            __builtin_trap();
        }
        is_broken = result == RingResult::Broken;
    }
    return 0;
}

// What a device queue is given and gives back: its limits, the answer to a submission, its counters. Plain values.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.hpp"
#include "fence/fence.hpp"
#include "queue/job.hpp"

namespace perceptd::queue {

struct DeviceQueueOptions {
    std::size_t jobs_max = 256;  ///< under way at one time
    std::size_t buffers_max = 4096;
    std::size_t programs_max = 64;
    std::size_t flows_max = 64;
    std::int64_t fence_limit_ns = 5'000'000'000;  ///< a fence that takes longer counts as lost
    std::int64_t job_limit_ns =
        3'000'000'000;  ///< without a sign from a device that holds jobs; where it says nothing else
    std::uint64_t traffic_bytes_per_s = 0;  ///< see SchedulerOptions
    std::uint64_t traffic_burst_bytes = 0;
};

/// The answer to submit(). Ok, or Full (again after a completion), Invalid (counts, class).
struct Submitted {
    Status status = Status::Invalid;
    JobId id = 0;
    std::optional<fence::Fence> fence;  ///< the out-fence, where it was wanted; it may leave the process
};

struct QueueCounters {
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;  ///< with whatever status
    std::uint64_t rerun = 0;      ///< jobs that a lost device gave back and another took
    std::uint64_t dependency_lost = 0;
    std::uint64_t devices_lost = 0;
};

}  // namespace perceptd::queue

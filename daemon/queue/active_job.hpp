// The records of a queue: a job under way, and a request on its way in. Own the job's fences and the writing end of its
// out-fence.
#pragma once

#include <cstdint>

#include "base/unique_fd.hpp"
#include "queue/job.hpp"

namespace perceptd::queue {

/// Free: no job. Fences: an acquire fence is open. Loading: its program is. Ready: with the scheduler. Held: by the
/// device.
enum class JobState : std::uint8_t { Free, Fences, Loading, Ready, Held };
/// A job under way.
struct ActiveJob {
    JobState state = JobState::Free;
    std::uint32_t generation = 0;
    std::uint32_t fences_left = 0;
    std::size_t lane = 0;
    JobId id = 0;
    Job job;
    UniqueFd out_fence;
    std::int64_t submitted_at_ns = 0;
    std::int64_t device_ns = 0;  // on devices that it has left
    bool is_bound = false;       // it counts as a user of its buffers and program
    bool is_cancelled = false;   // while a device holds it
};
/// What another thread asks of the queue.
struct QueueCommand {
    enum class Kind : std::uint8_t { Submit, Cancel, Reset } kind = Kind::Cancel;
    JobId id = 0;
    std::int64_t at_ns = 0;
    Job job;
    UniqueFd out_fence;
};

}  // namespace perceptd::queue

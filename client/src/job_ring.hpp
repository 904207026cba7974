// The client's half of a job ring: submissions go in, completions come out.
// Owns the mapping and both bells.
// Never trusts the ring's contents beyond what the daemon alone could have spoilt, and sleeps only in next().
#pragma once

#include <cstdint>

#include "percept_layout.h"
#include "spin_budget.hpp"
#include "stamped_ring.hpp"
#include "unique_fd.hpp"

namespace percept {

/// Thread-bound. No allocation after construction.
class JobRing {
public:
    /// The three descriptors as MapRing's answer brings them. `spin_limit_us` 0: never spin. Throws Failure.
    JobRing(UniqueFd memory, UniqueFd submission_bell, UniqueFd completion_bell, std::uint32_t spin_limit_us);
    ~JobRing();
    JobRing(const JobRing&) = delete;
    JobRing& operator=(const JobRing&) = delete;

    /// PERCEPT_OK, or PERCEPT_TIMEOUT when the ring is full: take completions first. Makes one system call when the
    /// daemon sleeps. Throws Failure(Protocol).
    int submit(const percept_job_entry& entry);
    /// PERCEPT_OK with the next completion, or PERCEPT_TIMEOUT. Negative `timeout_ms`: waits without end.
    /// Throws Failure(Disconnected) once the daemon is gone.
    int next(int timeout_ms, percept_job_completion& completion);

private:
    [[nodiscard]] bool take(percept_job_completion& completion);
    int sleep(int timeout_ms, percept_job_completion& completion);

    UniqueFd submission_bell_;
    UniqueFd completion_bell_;
    percept_job_ring* shared_;
    perceptd::StampedWriter<percept_job_entry, PERCEPT_JOB_RING_ENTRIES> submissions_;
    perceptd::StampedReader<percept_job_completion, PERCEPT_JOB_RING_ENTRIES> completions_;
    perceptd::SleepWord daemon_word_;
    perceptd::SleepWord client_word_;
    perceptd::SpinBudget spin_;
    std::uint64_t taken_count_ = 0;
};

}  // namespace percept

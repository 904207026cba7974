// The daemon's half of a job ring: submissions come out, completions go in, a sleeping client is woken.
// Owns the shared memory and the daemon's ends of both bells.
// Never trusts a word of the ring, never blocks, and never reads or writes a descriptor whose flags a client can
// change.
//
// Submissions ring an eventfd that the daemon only watches (edge-triggered), so that no count matters. Completions ring
// a pipe: its two ends are two open files, while the one of an eventfd would let a client fill it up, make it blocking
// and so stop the thread that rings. Shared memory: struct percept_job_ring.
#pragma once

#include <cstdint>
#include <string>

#include "arena/memfd_buffer.hpp"
#include "base/unique_fd.hpp"
#include "percept_layout.h"
#include "stamped_ring.hpp"

namespace perceptd::queue {

/// Null when counts, class and flags of `entry` are in range, otherwise what is wrong. Ids and ranges of buffers are
/// the session's to check.
[[nodiscard]] const char* fault_of(const percept_job_entry& entry) noexcept;

/// Thread-bound but for its construction. Real-time after construction: no allocation, no lock; complete() makes one
/// system call when the client sleeps.
class JobRing {
public:
    /// Descriptors for the client, once; for SCM_RIGHTS in this order.
    struct ClientEnd {
        UniqueFd memory;           ///< writable; it can neither shrink nor grow
        UniqueFd submission_bell;  ///< eventfd: the client writes
        UniqueFd completion_bell;  ///< read end of a pipe: end of file says that the daemon is gone
    };

    /// Throws std::system_error.
    explicit JobRing(const std::string& label);

    [[nodiscard]] ClientEnd take_client_end();

    /// The next submission, copied. Nothing also while as many jobs are in flight as there is room for completions: a
    /// client that never reads them holds up itself alone.
    RingResult take(percept_job_entry& entry) noexcept;
    /// Answers one job that take() gave out. Nothing never happens to a job that is in flight.
    RingResult complete(const percept_job_completion& completion) noexcept;

    /// Before this thread sleeps; look once more afterwards.
    void announce_sleep() noexcept { daemon_word_.announce(); }
    void withdraw_sleep() noexcept { daemon_word_.withdraw(); }
    /// Borrowed, for epoll with EPOLLET: an edge may mean a submission.
    [[nodiscard]] int submission_bell() const noexcept { return submission_bell_.borrow(); }
    [[nodiscard]] std::uint32_t in_flight_count() const noexcept { return in_flight_count_; }

private:
    arena::MemfdBuffer memory_;
    percept_job_ring& shared_;
    StampedReader<percept_job_entry, PERCEPT_JOB_RING_ENTRIES> submissions_;
    StampedWriter<percept_job_completion, PERCEPT_JOB_RING_ENTRIES> completions_;
    SleepWord daemon_word_;
    SleepWord client_word_;
    UniqueFd submission_bell_;
    UniqueFd completion_bell_;         // write end
    UniqueFd client_completion_bell_;  // read end, until it is taken
    std::uint32_t in_flight_count_ = 0;
};

}  // namespace perceptd::queue

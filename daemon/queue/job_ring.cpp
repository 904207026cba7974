#include "queue/job_ring.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <new>

#include "base/error.hpp"
#include "base/event_fd.hpp"

namespace perceptd::queue {
namespace {

constexpr std::uint8_t kClassCount = 3;

percept_job_ring& lay_out(std::byte* memory) noexcept {
    auto* const ring = new (memory) percept_job_ring{};
    ring->magic = PERCEPT_JOB_RING_MAGIC;
    ring->version = PERCEPT_LAYOUT_VERSION;
    return *ring;
}

}  // namespace

const char* fault_of(const percept_job_entry& entry) noexcept {
    if (entry.job_class >= kClassCount) {
        return "there is no such job class";
    }
    if (entry.flags != 0) {
        return "flags must be 0";
    }
    if (unsigned{entry.input_count} + entry.output_count > PERCEPT_JOB_BINDINGS_MAX) {
        return "too many bindings for a ring; use the channel";
    }
    if (entry.program_id == 0 && entry.input_count + entry.output_count != 0) {
        return "bindings without a program";
    }
    return nullptr;
}

JobRing::JobRing(const std::string& label)
    : memory_(sizeof(percept_job_ring), arena::Writer::Provider, label),
      shared_(lay_out(memory_.mapping().data())),
      submissions_(shared_.submissions, &shared_.submission_head),
      completions_(shared_.completions, &shared_.completion_head),
      daemon_word_(&shared_.daemon_sleeps),
      client_word_(&shared_.client_sleeps),
      submission_bell_(make_event()) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        throw_errno("pipe2");
    }
    client_completion_bell_.reset(ends[0]);
    completion_bell_.reset(ends[1]);
    // Of the daemon's end alone: the client's end is another open file and stays as its owner wants it.
    if (::fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) {
        throw_errno("fcntl(F_SETFL)");
    }
}

JobRing::ClientEnd JobRing::take_client_end() {
    return {.memory = memory_.provider_fd(),
            .submission_bell = submission_bell_.duplicate(),
            .completion_bell = std::move(client_completion_bell_)};
}

RingResult JobRing::take(percept_job_entry& entry) noexcept {
    if (in_flight_count_ == PERCEPT_JOB_RING_ENTRIES) {
        return RingResult::Nothing;
    }
    const RingResult result = submissions_.take(entry);
    in_flight_count_ += result == RingResult::Ok;
    return result;
}

RingResult JobRing::complete(const percept_job_completion& completion) noexcept {
    const RingResult result = completions_.write(completion);
    if (result != RingResult::Ok) {
        return result;
    }
    --in_flight_count_;
    if (client_word_.must_ring()) {
        const char ring = 1;
        // A full pipe is heard as well, and a reader that is gone is the channel's to find. SIGPIPE is ignored.
        if (::write(completion_bell_.borrow(), &ring, 1) < 0) {
            return RingResult::Ok;
        }
    }
    return RingResult::Ok;
}

}  // namespace perceptd::queue

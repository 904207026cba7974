#include "job_ring.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <thread>

#include "failure.hpp"

namespace percept {
namespace {

using perceptd::RingResult;
using Clock = std::chrono::steady_clock;

percept_job_ring* map(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0 || static_cast<std::size_t>(status.st_size) < sizeof(percept_job_ring)) {
        throw_protocol("a job ring that is too small");
    }
    void* const memory = ::mmap(nullptr, sizeof(percept_job_ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        throw_system("mmap of the job ring");
    }
    auto* const ring = static_cast<percept_job_ring*>(memory);
    if (ring->magic != PERCEPT_JOB_RING_MAGIC || ring->version != PERCEPT_LAYOUT_VERSION) {
        ::munmap(memory, sizeof(percept_job_ring));
        throw_protocol("a job ring of another version");
    }
    return ring;
}

std::size_t used_bytes(const percept_job_entry& entry) {
    const std::size_t count = std::size_t{entry.input_count} + entry.output_count;
    if (count > PERCEPT_JOB_BINDINGS_MAX) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "a job with more than 6 bindings: submit it through the channel");
    }
    return offsetof(percept_job_entry, bindings) + count * sizeof(percept_job_binding);
}

}  // namespace

JobRing::JobRing(UniqueFd memory, UniqueFd submission_bell, UniqueFd completion_bell, std::uint32_t spin_limit_us)
    : submission_bell_(std::move(submission_bell)),
      completion_bell_(std::move(completion_bell)),
      shared_(map(memory.borrow())),
      submissions_(shared_->submissions, &shared_->submission_head),
      completions_(shared_->completions, &shared_->completion_head),
      daemon_word_(&shared_->daemon_sleeps),
      client_word_(&shared_->client_sleeps),
      spin_(std::thread::hardware_concurrency() > 1 ? spin_limit_us : 0) {}

JobRing::~JobRing() {
    ::munmap(shared_, sizeof(percept_job_ring));
}

int JobRing::submit(const percept_job_entry& entry) {
    const std::size_t bytes = used_bytes(entry);
    if (submissions_.written_count() - taken_count_ == PERCEPT_JOB_RING_ENTRIES) {
        return PERCEPT_TIMEOUT;  // as many in flight as there is room for completions
    }
    switch (submissions_.write(entry, bytes)) {
        case RingResult::Ok: break;
        case RingResult::Nothing: return PERCEPT_TIMEOUT;
        case RingResult::Broken: throw_protocol("an impossible count of submissions taken");
    }
    if (daemon_word_.must_ring()) {
        const std::uint64_t ring = 1;
        if (::write(submission_bell_.borrow(), &ring, sizeof(ring)) < 0 && errno != EAGAIN) {
            throw_system("write to the submission bell");
        }
    }
    return PERCEPT_OK;
}

bool JobRing::take(percept_job_completion& completion) {
    switch (completions_.take(completion)) {
        case RingResult::Ok: ++taken_count_; return true;
        case RingResult::Nothing: return false;
        case RingResult::Broken: break;
    }
    throw_protocol("a completion with the stamp of another place");
}

int JobRing::next(int timeout_ms, percept_job_completion& completion) {
    const std::uint32_t rounds = timeout_ms == 0 ? 0 : spin_.rounds();
    for (std::uint32_t round = 0; round <= rounds; ++round) {
        if (take(completion)) {
            spin_.found_after(round);
            return PERCEPT_OK;
        }
        perceptd::spin_pause();
    }
    return timeout_ms == 0 ? PERCEPT_TIMEOUT : sleep(timeout_ms, completion);
}

int JobRing::sleep(int timeout_ms, percept_job_completion& completion) {
    const auto start = Clock::now();
    const auto end = start + std::chrono::milliseconds(timeout_ms);
    int result = PERCEPT_TIMEOUT;
    for (;;) {
        client_word_.announce();
        if (take(completion)) {
            result = PERCEPT_OK;
            break;
        }
        if (timeout_ms >= 0) {
            const auto left_ns = std::chrono::nanoseconds(end - Clock::now()).count();
            pollfd entry{completion_bell_.borrow(), POLLIN, 0};
            const timespec left{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
            if (left_ns <= 0 || ::ppoll(&entry, 1, &left, nullptr) == 0) {
                break;
            }
        }
        char rings[64];
        const ssize_t count = ::read(completion_bell_.borrow(), rings, sizeof(rings));
        if (count == 0) {
            if (take(completion)) {
                result = PERCEPT_OK;
                break;
            }
            throw Failure(PERCEPT_ERROR_DISCONNECTED, "perceptd closed the job ring: connect again and map a new one");
        }
        if (count < 0 && errno != EINTR && errno != EAGAIN) {
            throw_system("read of the completion bell");
        }
    }
    client_word_.withdraw();
    spin_.slept(std::chrono::nanoseconds(Clock::now() - start).count());
    return result;
}

}  // namespace percept

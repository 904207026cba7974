// One piece of work for a device: what is computed, on which buffers, by when, and how it ended. Owns the acquire
// fences that it waits for; names buffers and programs by the ids of the queue that it is given to. Never holds memory:
// what it reads and writes stays where it is.
#pragma once

#include <array>
#include <cstdint>

#include "base/unique_fd.hpp"
#include "fence/fence.hpp"

namespace perceptd::queue {

/// Given by the queue, counted from 1, never twice. 0: none.
using JobId = std::uint64_t;
using BufferId = std::uint64_t;
using ProgramId = std::uint64_t;
/// An admitted flow of jobs (admission.hpp). 0: none; a Hard job must have one.
using FlowId = std::uint32_t;

enum class JobClass : std::uint8_t {
    Hard,        ///< audio, wake word, safety: admitted beforehand, never dropped; an overrun is a fault
    Soft,        ///< vision: dropped whole when it can no longer be in time
    BestEffort,  ///< text: its flow's share of the device, and what others leave
};

/// How a job stands or ended. All but Pending are final; an ended job writes nothing any more.
enum class JobStatus : std::uint8_t {
    Pending,
    Ok,
    Cancelled,       ///< by its owner or by reset(); what it wrote so far is void
    DependencyLost,  ///< a fence that it waited for ended with an error, or not before the fence limit
    DeviceLost,      ///< the device or its driver died or ran over its limit, and no other device could take the job
    Dropped,         ///< a Soft job that could not be in time any more; it was never begun
    Invalid,         ///< ids, sizes or contents that the program does not take; the reason is in the contract of load()
    NotFinite,       ///< a NaN or an infinity was met; the outputs are void
    NoMemory,        ///< the device had no room for it
    Unsupported,     ///< right, but no device of this queue can do it
};

/// Lower snake case, for logs, listings and the channel.
constexpr const char* name_of(JobStatus status) noexcept {
    switch (status) {
        case JobStatus::Pending: return "pending";
        case JobStatus::Ok: return "ok";
        case JobStatus::Cancelled: return "cancelled";
        case JobStatus::DependencyLost: return "dependency_lost";
        case JobStatus::DeviceLost: return "device_lost";
        case JobStatus::Dropped: return "dropped";
        case JobStatus::Invalid: return "invalid";
        case JobStatus::NotFinite: return "not_finite";
        case JobStatus::NoMemory: return "no_memory";
        case JobStatus::Unsupported: return "unsupported";
    }
    return "unknown";
}

/// Part of a buffer that a job reads or writes. The range must lie inside the buffer: the queue checks it.
struct Binding {
    BufferId buffer = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
    /// Waited for, without a thread, before the device sees the job; none: ready. The giver says which kind it is
    /// (fence::kind_of()).
    UniqueFd acquire_fence;
    fence::Fence::Kind acquire_kind = fence::Fence::Kind::Pipe;
};

inline constexpr std::size_t kBindingsMax = 8;

/// Move-only, because of its fences.
struct Job {
    JobClass job_class = JobClass::BestEffort;
    bool is_foreground = true;  ///< background work, but for Hard jobs, runs only while no foreground work is ready
    FlowId flow = 0;
    ProgramId program = 0;
    std::int64_t deadline_ns = 0;     ///< CLOCK_MONOTONIC; 0: none (BestEffort only)
    std::int64_t cost_ns = 0;         ///< expected time on the device; 0: the flow's, or unknown
    std::uint64_t traffic_bytes = 0;  ///< DRAM bytes it is going to move; 0: unknown, not held against the budget
    std::uint64_t cookie = 0;         ///< the caller's; comes back in the Completion
    std::uint32_t input_count = 0;
    std::uint32_t output_count = 0;
    std::array<Binding, kBindingsMax> inputs;
    std::array<Binding, kBindingsMax> outputs;
};

/// What became of a job; told exactly once, after its out-fence was signalled.
struct Completion {
    JobId id = 0;
    std::uint64_t cookie = 0;
    JobStatus status = JobStatus::Pending;
    std::uint32_t device_index = 0;  ///< the device that ended it, by its place in the queue
    std::int64_t submitted_at_ns = 0;
    std::int64_t finished_at_ns = 0;
    std::int64_t device_ns = 0;  ///< time on the device, all segments together
};

}  // namespace perceptd::queue

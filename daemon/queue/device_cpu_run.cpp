// The device's thread of DeviceCpu: one segment after another.
#include <poll.h>

#include <algorithm>
#include <optional>

#include "arena/cpu_access.hpp"
#include "base/clock.hpp"
#include "base/contract.hpp"
#include "base/event_fd.hpp"
#include "queue/device_cpu.hpp"

namespace perceptd::queue {
namespace {

JobStatus status_of(Status status) noexcept {
    switch (status) {
        case Status::Ok: return JobStatus::Ok;
        case Status::NotFinite: return JobStatus::NotFinite;
        case Status::Ended: return JobStatus::DeviceLost;
        default: return JobStatus::Invalid;
    }
}

/// CPU access to the dma-bufs of one segment: a preempted job must not keep the caches of others waiting.
class SegmentAccess {
public:
    SegmentAccess(std::span<const CpuBinding> inputs, std::span<const CpuBinding> outputs) {
        open(inputs, arena::Touch::Read);
        open(outputs, arena::Touch::ReadWrite);
    }

private:
    void open(std::span<const CpuBinding> bindings, arena::Touch touch) {
        for (const CpuBinding& binding : bindings) {
            if (binding.is_dma_buf) {
                scopes_[count_++].emplace(binding.fd, touch);
            }
        }
    }
    std::array<std::optional<arena::CpuAccess>, 2 * kBindingsMax> scopes_;
    std::size_t count_ = 0;
};

}  // namespace

void DeviceCpu::serve(const std::atomic<bool>& stop) noexcept {
    while (!stop.load(std::memory_order_acquire)) {
        take_commands();
        const std::size_t next = held_.next();
        if (next == RunQueue::kNone) {
            static_cast<void>(is_idle_.exchange(true, std::memory_order_acq_rel));
            // The stop flag is set before its wake-up, which always writes.
            if (commands_.size() == 0 && !stop.load(std::memory_order_acquire)) {
                pollfd work{work_.borrow(), POLLIN, 0};
                ::poll(&work, 1, -1);
            }
            is_idle_.store(false, std::memory_order_relaxed);
            clear_event(work_.borrow());
            continue;
        }
        const std::size_t place = turn_of(next);
        const std::int64_t began_ns = monotonic_ns();
        const Status status = run_segment(place);
        const bool is_spent = held_.charge(place, monotonic_ns() - began_ns);
        if (status != Status::Again) {
            end(place, status_of(status));
        } else if (is_spent) {
            tell({.kind = DeviceEvent::Kind::GrantSpent, .job = held_.at(place).id, .ran_ns = held_.at(place).ran_ns});
        }
    }
}

std::size_t DeviceCpu::turn_of(std::size_t place) const noexcept {
    // A program has one job at a time: the one that it has begun goes first, with the urgency of who waits for it.
    for (std::size_t other = 0; other < running_.size(); ++other) {
        if (other != place && running_[other].has_begun && running_[other].job.program == running_[place].job.program) {
            return other;
        }
    }
    return place;
}

void DeviceCpu::take_commands() noexcept {
    Command command;
    while (commands_.pop(command)) {
        switch (command.kind) {
            case Command::Kind::Submit: {
                // submit() counts what is held, and the queue never gives an id twice.
                const std::size_t place = held_.add(command.id, command.rank, command.grant_ns);
                PERCEPTD_ASSERT(place != RunQueue::kNone);
                running_[place] = {command, false};
                break;
            }
            case Command::Kind::Grant: held_.grant(command.id, command.rank, command.grant_ns); break;
            case Command::Kind::Cancel:
                if (const std::size_t place = held_.find(command.id); command.id != 0 && place != RunQueue::kNone) {
                    end(place, JobStatus::Cancelled);
                }
                break;
            case Command::Kind::CancelAll:
            case Command::Kind::Abandon:
                for (std::size_t place = 0; place < held_.capacity(); ++place) {
                    if (held_.at(place).id != 0) {
                        const bool is_lost = command.kind == Command::Kind::Abandon;
                        end(place, is_lost ? JobStatus::DeviceLost : JobStatus::Cancelled);
                    }
                }
                if (command.kind == Command::Kind::Abandon) {
                    tell({.kind = DeviceEvent::Kind::Lost, .status = JobStatus::DeviceLost});
                }
                break;
        }
    }
}

Status DeviceCpu::run_segment(std::size_t place) noexcept {
    Running& running = running_[place];
    const std::span<const CpuBinding> inputs(running.job.inputs.data(), running.job.input_count);
    const std::span<const CpuBinding> outputs(running.job.outputs.data(), running.job.output_count);
    const std::int64_t end_ns = monotonic_ns() + options_.segment_ns;
    try {
        const SegmentAccess access(inputs, outputs);
        if (!running.has_begun) {
            running.has_begun = true;
            if (const Status begun = running.job.program->begin(inputs, outputs); begun != Status::Ok) {
                return begun;
            }
        }
        Status status = Status::Again;
        // A segment ends early for news: whoever is more urgent waits for one step, not for all of it.
        do {
            status = running.job.program->step();
        } while (status == Status::Again && monotonic_ns() < end_ns && commands_.size() == 0);
        return status;
    } catch (const std::exception&) {
        return Status::Ended;  // the kernel refuses the memory: a dma-buf whose exporter is gone
    }
}

void DeviceCpu::end(std::size_t place, JobStatus status) noexcept {
    const RunQueue::Held& job = held_.at(place);
    tell({.kind = DeviceEvent::Kind::JobEnded, .status = status, .job = job.id, .ran_ns = job.ran_ns});
    running_[place].has_begun = false;
    running_[place].job.program = nullptr;
    held_.remove(place);
}

void DeviceCpu::tell(const DeviceEvent& event) noexcept {
    // Room for one end and one spent grant of every held job: it cannot be full.
    PERCEPTD_ASSERT(events_.push(event));
    signal_event(event_.borrow());
}

}  // namespace perceptd::queue

// A device that does only what the test says: it takes jobs, and ends them when told. Owns its event.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/event_fd.hpp"
#include "queue/device.hpp"

namespace fake {

using namespace perceptd;
using namespace perceptd::queue;

class Device : public queue::Device {
public:
    explicit Device(std::string name, bool is_preemptive = false, std::uint32_t depth = 2) : event_(make_event()) {
        about.name = std::move(name);
        about.is_preemptive = is_preemptive;
        about.queue_depth = depth;
        about.segment_ns = 1'000;
        held.reserve(64);
    }

    // What the test sets and sees.
    DeviceDescription about;
    DeviceHealth state = DeviceHealth::Good;
    bool takes_programs = true;
    bool takes_buffers = true;
    bool loads_at_once = true;
    bool ends_at_once = false;
    bool is_deaf = false;     ///< cancel, reset and abandon do nothing
    bool comes_back = false;  ///< reset() revives it
    std::size_t room = 64;
    std::vector<DeviceJob> held;
    std::vector<DeviceHandle> buffers;
    std::vector<DeviceHandle> programs;
    std::vector<std::pair<JobId, std::int64_t>> grants;
    std::uint64_t submissions = 0;

    void end(JobId job, JobStatus status, std::int64_t ran_ns = 1'000) {
        std::erase_if(held, [&](const DeviceJob& h) { return h.id == job; });
        tell({.kind = DeviceEvent::Kind::JobEnded, .status = status, .job = job, .ran_ns = ran_ns});
    }
    void spend(JobId job, std::int64_t ran_ns) {
        tell({.kind = DeviceEvent::Kind::GrantSpent, .job = job, .ran_ns = ran_ns});
    }
    void answer_load(DeviceHandle program, JobStatus status) {
        tell({.kind = DeviceEvent::Kind::ProgramLoaded, .status = status, .program = program});
    }
    void die(const char* reason = "killed by the test") {
        state = DeviceHealth::Lost;
        while (!held.empty()) {
            end(held.front().id, JobStatus::DeviceLost);
        }
        DeviceEvent event{.kind = DeviceEvent::Kind::Lost, .status = JobStatus::DeviceLost};
        std::strncpy(event.reason.data(), reason, event.reason.size() - 1);
        tell(event);
    }
    void tell(const DeviceEvent& event) {
        events_[(first_ + count_++) % events_.size()] = event;
        signal_event(event_.borrow());
    }

    [[nodiscard]] const DeviceDescription& description() const noexcept override { return about; }
    [[nodiscard]] DeviceHealth health() const noexcept override { return state; }
    [[nodiscard]] DeviceHandle import_buffer(const BufferDescription&) override {
        if (!takes_buffers) {
            throw Error(ErrorCode::Unsupported, "no such buffers here");
        }
        buffers.push_back(++last_);
        return last_;
    }
    void release_buffer(DeviceHandle buffer) noexcept override { std::erase(buffers, buffer); }
    [[nodiscard]] DeviceHandle load(const Program&) override {
        if (!takes_programs) {
            throw Error(ErrorCode::Unsupported, "no such programs here");
        }
        programs.push_back(++last_);
        if (loads_at_once) {
            answer_load(last_, JobStatus::Ok);
        }
        return last_;
    }
    void unload(DeviceHandle program) noexcept override { std::erase(programs, program); }
    [[nodiscard]] Status submit(const DeviceJob& job) noexcept override {
        if (state != DeviceHealth::Good) {
            return Status::Ended;
        }
        if (held.size() >= room) {
            return Status::Full;
        }
        ++submissions;
        held.push_back(job);
        if (ends_at_once) {
            end(job.id, JobStatus::Ok);
        }
        return Status::Ok;
    }
    void grant(JobId job, const Rank&, std::int64_t grant_ns) noexcept override { grants.emplace_back(job, grant_ns); }
    void cancel(JobId job) noexcept override {
        const bool is_here = std::any_of(held.begin(), held.end(), [&](const DeviceJob& h) { return h.id == job; });
        if (is_here && !is_deaf) {
            end(job, JobStatus::Cancelled);
        }
    }
    void reset() noexcept override {
        while (!held.empty() && !is_deaf) {
            end(held.front().id, JobStatus::Cancelled);
        }
        if (comes_back && state == DeviceHealth::Lost) {
            state = DeviceHealth::Good;
            buffers.clear();
            programs.clear();
        }
    }
    void abandon() noexcept override {
        if (!is_deaf) {
            die("given up");
        }
        state = DeviceHealth::Lost;
    }
    [[nodiscard]] int event_fd() const noexcept override { return event_.borrow(); }
    [[nodiscard]] bool take_event(DeviceEvent& event) noexcept override {
        if (count_ == 0) {
            clear_event(event_.borrow());
            return false;
        }
        event = events_[first_];
        first_ = (first_ + 1) % events_.size();
        --count_;
        return true;
    }

private:
    UniqueFd event_;
    DeviceHandle last_ = 0;
    std::vector<DeviceEvent> events_ = std::vector<DeviceEvent>(1024);
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

}  // namespace fake

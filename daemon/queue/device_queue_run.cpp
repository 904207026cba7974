// The second half of DeviceQueue: from a ready job to its end.
#include <algorithm>

#include "base/clock.hpp"
#include "queue/device_queue.hpp"

namespace perceptd::queue {
namespace {

/// What one dispatch() takes at most from one device, so that it cannot hold up the others.
constexpr std::size_t kEventsMax = 1024;

/// A device says how a job ended; what only the queue may say, or what is no end, is a broken device.
JobStatus believed(JobStatus status) noexcept {
    const bool is_possible = status == JobStatus::Ok || status == JobStatus::Cancelled ||
                             status == JobStatus::Invalid || status == JobStatus::NotFinite ||
                             status == JobStatus::NoMemory || status == JobStatus::Unsupported;
    return is_possible ? status : JobStatus::DeviceLost;
}

std::string_view reason_of(const DeviceEvent& event) noexcept {
    const auto end = std::find(event.reason.begin(), event.reason.end(), '\0');
    return {event.reason.data(), static_cast<std::size_t>(end - event.reason.begin())};
}

}  // namespace

bool DeviceQueue::is_good(std::size_t lane) const noexcept {
    return !lanes_[lane].is_lost && lanes_[lane].device->health() == DeviceHealth::Good;
}

void DeviceQueue::choose_lane(std::size_t place, std::size_t first_lane) noexcept {
    ActiveJob& active = active_[place];
    bool is_loading = false;
    bool was_there = first_lane > 0;
    for (std::size_t lane = first_lane; lane < lanes_.size(); ++lane) {
        const Resources::ProgramState program = resources_.state(active.job.program, lane);
        if (!is_good(lane)) {
            was_there = was_there || program == Resources::ProgramState::Loaded;
            continue;
        }
        is_loading = is_loading || program == Resources::ProgramState::Loading;
        DeviceHandle handle = 0;
        Resources::Bindings inputs;
        Resources::Bindings outputs;
        if (program != Resources::ProgramState::Loaded || !resources_.bind(active.job, lane, handle, inputs, outputs)) {
            continue;
        }
        if (lanes_[lane].scheduler.add(place, active.job, monotonic_ns()) != Status::Ok) {
            finish(place, JobStatus::Invalid);  // its flow is not open, or of another class
            return;
        }
        active.lane = lane;
        active.state = JobState::Ready;
        return;
    }
    if (is_loading) {
        active.state = JobState::Loading;
        return;
    }
    finish(place, was_there ? JobStatus::DeviceLost : JobStatus::Unsupported);
}

void DeviceQueue::choose_again(JobState state) noexcept {
    for (std::size_t place = 0; place < active_.size(); ++place) {
        if (active_[place].state == state) {
            choose_lane(place, 0);
        }
    }
}

void DeviceQueue::move_away(std::size_t place) noexcept {
    ActiveJob& active = active_[place];
    Lane& lane = lanes_[active.lane];
    lane.held -= active.state == JobState::Held ? 1 : 0;
    lane.scheduler.remove(place, 0, false, monotonic_ns());
    active.state = JobState::Loading;  // with no scheduler and no device
    if (active.is_cancelled) {
        finish(place, JobStatus::Cancelled);
        return;
    }
    choose_lane(place, active.lane + 1);
    counters_.rerun += active.state != JobState::Free ? 1 : 0;
}

void DeviceQueue::feed(std::size_t index, std::int64_t now_ns) noexcept {
    Lane& lane = lanes_[index];
    std::size_t place = 0;
    while (lane.scheduler.drop(now_ns, place)) {
        finish(place, JobStatus::Dropped);
    }
    Assignment assignment;
    while (!lane.is_lost && !lane.is_full && lane.scheduler.pick(now_ns, assignment)) {
        switch (hand_over(index, assignment)) {
            case Status::Ok: break;
            case Status::Full:
                lane.scheduler.put_back(assignment.place);
                lane.is_full = lane.held > 0;  // its next event opens it
                if (!lane.is_full) {
                    finish(assignment.place, JobStatus::NoMemory);  // full without any job of ours: nothing to wait for
                }
                break;
            case Status::Ended:
                lane.scheduler.put_back(assignment.place);
                lane_lost(index, "the device takes no jobs any more");
                break;
            default: finish(assignment.place, JobStatus::Invalid); break;
        }
    }
}

Status DeviceQueue::hand_over(std::size_t index, const Assignment& assignment) noexcept {
    ActiveJob& active = active_[assignment.place];
    Lane& lane = lanes_[index];
    DeviceJob job{.id = active.id, .rank = assignment.rank, .grant_ns = assignment.grant_ns};
    Resources::Bindings inputs;
    Resources::Bindings outputs;
    if (!resources_.bind(active.job, index, job.program, inputs, outputs)) {
        return Status::Invalid;
    }
    job.inputs = {inputs.data(), active.job.input_count};
    job.outputs = {outputs.data(), active.job.output_count};
    const Status status = lane.device->submit(job);
    if (status == Status::Ok) {
        active.state = JobState::Held;
        if (lane.held++ == 0) {
            lane.progress_at_ns = monotonic_ns();
        }
    }
    return status;
}

void DeviceQueue::take_events(std::size_t index) noexcept {
    Lane& lane = lanes_[index];
    DeviceEvent event;
    for (std::size_t i = 0; i < kEventsMax && lane.device->take_event(event); ++i) {
        lane.progress_at_ns = monotonic_ns();
        lane.is_full = false;
        switch (event.kind) {
            case DeviceEvent::Kind::JobEnded: job_ended(index, event); break;
            case DeviceEvent::Kind::GrantSpent: grant_spent(index, event); break;
            case DeviceEvent::Kind::ProgramLoaded: program_loaded(index, event); break;
            case DeviceEvent::Kind::Lost: lane_lost(index, reason_of(event)); break;
        }
    }
}

std::size_t DeviceQueue::find_held(std::size_t lane, JobId id) const noexcept {
    // A device may speak of a job that is not its own (any more): that is nobody's event.
    const std::size_t place = find(id);
    const bool is_its = place != kNone && active_[place].state == JobState::Held && active_[place].lane == lane;
    return is_its ? place : kNone;
}

void DeviceQueue::job_ended(std::size_t lane, const DeviceEvent& event) noexcept {
    const std::size_t place = find_held(lane, event.job);
    if (place == kNone) {
        return;
    }
    const JobStatus status = believed(event.status);
    const std::int64_t ran_ns = std::max<std::int64_t>(event.ran_ns, 0);
    active_[place].device_ns += ran_ns;
    if (status == JobStatus::DeviceLost) {
        move_away(place);
        return;
    }
    --lanes_[lane].held;
    const bool is_done = status == JobStatus::Ok || status == JobStatus::NotFinite;
    lanes_[lane].scheduler.remove(place, ran_ns, is_done, monotonic_ns());
    active_[place].state = JobState::Loading;  // with no scheduler and no device
    finish(place, status);
}

void DeviceQueue::grant_spent(std::size_t lane, const DeviceEvent& event) noexcept {
    if (const std::size_t place = find_held(lane, event.job); place != kNone) {
        const Assignment more =
            lanes_[lane].scheduler.spent(place, std::max<std::int64_t>(event.ran_ns, 0), monotonic_ns());
        lanes_[lane].device->grant(event.job, more.rank, more.grant_ns);
    }
}

void DeviceQueue::program_loaded(std::size_t lane, const DeviceEvent& event) noexcept {
    const Resources::Loaded loaded = resources_.note_loaded(lane, event);
    choose_again(JobState::Loading);
    if (loaded.program != 0 && on_program) {
        on_program(loaded.program, loaded.status, reason_of(event));
    }
}

void DeviceQueue::lane_lost(std::size_t index, std::string_view reason) noexcept {
    Lane& lane = lanes_[index];
    if (lane.is_lost) {
        return;
    }
    lane.is_lost = true;
    ++counters_.devices_lost;
    for (std::size_t place = 0; place < active_.size(); ++place) {
        const JobState state = active_[place].state;
        if ((state == JobState::Ready || state == JobState::Held) && active_[place].lane == index) {
            move_away(place);
        }
    }
    choose_again(JobState::Loading);  // what waited for this device to load waits for nothing
    if (on_device_lost) {
        on_device_lost(index, reason);
    }
}

bool DeviceQueue::revive(std::size_t index) {
    Lane& lane = lanes_[index];
    if (!lane.is_lost) {
        return true;
    }
    lane.device->reset();
    if (lane.device->health() != DeviceHealth::Good) {
        return false;
    }
    lane.is_lost = false;
    lane.is_full = false;
    resources_.refill(index);
    poller_.wake();
    return true;
}

std::int64_t DeviceQueue::limit_of(const Lane& lane) const noexcept {
    const std::int64_t own_ns = lane.device->description().job_limit_ns;
    return own_ns > 0 ? own_ns : options_.job_limit_ns;
}

void DeviceQueue::check_limits(std::int64_t now_ns) noexcept {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        Lane& lane = lanes_[i];
        if (!lane.is_lost && lane.held > 0 && now_ns - lane.progress_at_ns > limit_of(lane)) {
            lane.device->abandon();
            take_events(i);
            lane_lost(i, "no sign from the device within its limit");
        }
    }
    for (std::size_t place = 0; place < active_.size(); ++place) {
        if (active_[place].state == JobState::Fences &&
            now_ns - active_[place].submitted_at_ns > options_.fence_limit_ns) {
            finish(place, JobStatus::DependencyLost);
        }
    }
}

void DeviceQueue::arm() noexcept {
    std::int64_t next_ns = kUnlimitedNs;
    for (const Lane& lane : lanes_) {
        if (lane.is_lost) {
            continue;
        }
        next_ns = std::min(next_ns, lane.is_full ? kUnlimitedNs : lane.scheduler.next_change_ns());
        if (lane.held > 0 && limit_of(lane) < kUnlimitedNs - lane.progress_at_ns) {
            next_ns = std::min(next_ns, lane.progress_at_ns + limit_of(lane) + 1);
        }
    }
    for (const ActiveJob& active : active_) {
        if (active.state == JobState::Fences) {
            next_ns = std::min(next_ns, active.submitted_at_ns + options_.fence_limit_ns + 1);
        }
    }
    poller_.arm_at(next_ns);
}

}  // namespace perceptd::queue

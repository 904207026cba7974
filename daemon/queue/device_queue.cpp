#include "queue/device_queue.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/clock.hpp"
#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::queue {
namespace {

constexpr std::size_t kDevicesMax = 64;  // a bit each in reset_now()
constexpr std::uint64_t kLaneToken = std::uint64_t{1} << 63;

/// Which fence of which job: the generation tells a fence that was watched for the place's last job.
std::uint64_t fence_token(std::uint32_t generation, std::size_t place, std::size_t binding) noexcept {
    return (std::uint64_t{generation & 0x7FFFFFFF} << 32) | (place << 8) | binding;
}

Binding& binding_at(Job& job, std::size_t index) noexcept {
    return index < kBindingsMax ? job.inputs[index] : job.outputs[index - kBindingsMax];
}

bool is_used(const Job& job, std::size_t index) noexcept {
    return index < kBindingsMax ? index < job.input_count : index - kBindingsMax < job.output_count;
}

bool is_well_formed(const Job& job) noexcept {
    const bool is_class =
        job.job_class == JobClass::Hard || job.job_class == JobClass::Soft || job.job_class == JobClass::BestEffort;
    return is_class && job.input_count <= kBindingsMax && job.output_count <= kBindingsMax && job.cost_ns >= 0;
}

}  // namespace

std::vector<Lane> DeviceQueue::lanes_of(std::vector<std::unique_ptr<Device>> devices,
                                        const DeviceQueueOptions& options) {
    if (devices.empty()) {
        throw Error(ErrorCode::InvalidArgument, "a queue needs at least one device; the CPU is always there");
    }
    if (devices.size() > kDevicesMax) {
        throw Error(ErrorCode::InvalidArgument, "a queue has at most 64 devices; leave some out of the configuration");
    }
    std::vector<Lane> lanes;
    for (std::unique_ptr<Device>& device : devices) {
        const DeviceDescription& about = device->description();
        SchedulerOptions scheduling{.jobs_max = options.jobs_max, .flows_max = options.flows_max};
        scheduling.depth = std::clamp<std::uint32_t>(about.queue_depth, 1, 2);
        scheduling.is_preemptive = about.is_preemptive;
        scheduling.traffic_bytes_per_s = options.traffic_bytes_per_s;
        scheduling.traffic_burst_bytes = options.traffic_burst_bytes;
        lanes.push_back(Lane{std::move(device), Scheduler(scheduling)});
    }
    return lanes;
}

std::vector<Device*> DeviceQueue::borrowed() const {
    std::vector<Device*> devices;
    for (const Lane& lane : lanes_) {
        devices.push_back(lane.device.get());
    }
    return devices;
}

DeviceQueue::DeviceQueue(std::vector<std::unique_ptr<Device>> devices, const DeviceQueueOptions& options)
    : options_(options),
      lanes_(lanes_of(std::move(devices), options)),
      resources_(borrowed(), options.buffers_max, options.programs_max),
      admission_({.flows_max = options.flows_max, .other_segment_ns = lanes_.front().device->description().segment_ns}),
      commands_(std::bit_ceil(options.jobs_max * 4)),
      active_(options.jobs_max) {
    gone_buffers_.reserve(2 * kBindingsMax);
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        if (poller_.watch(lanes_[i].device->event_fd(), kLaneToken | i) != Status::Ok) {
            throw_errno("epoll_ctl", lanes_[i].device->description().name);
        }
    }
}

DeviceQueue::~DeviceQueue() {
    QueueCommand command;
    while (commands_.pop(command)) {
        fence::end_pipe(command.out_fence, false);
    }
    for (ActiveJob& active : active_) {
        fence::end_pipe(active.out_fence, false);
    }
}

Submitted DeviceQueue::submit(Job&& job, bool wants_fence) noexcept {
    Submitted answer;
    if (!is_well_formed(job)) {
        return answer;
    }
    answer.status = Status::Full;
    if (under_way_.fetch_add(1, std::memory_order_relaxed) >= options_.jobs_max) {
        under_way_.fetch_sub(1, std::memory_order_relaxed);
        return answer;
    }
    QueueCommand command{.kind = QueueCommand::Kind::Submit, .at_ns = monotonic_ns()};
    if (wants_fence) {
        try {
            fence::PipeFence made = fence::make_pipe_fence();
            command.out_fence = std::move(made.writer);
            answer.fence.emplace(std::move(made.fence));
        } catch (const std::exception&) {  // no descriptors left: as no place
            under_way_.fetch_sub(1, std::memory_order_relaxed);
            return answer;
        }
    }
    command.id = last_id_.fetch_add(1, std::memory_order_relaxed) + 1;
    answer.id = command.id;
    command.job = std::move(job);
    if (!commands_.push(std::move(command))) {
        job = std::move(command.job);
        answer.fence.reset();
        under_way_.fetch_sub(1, std::memory_order_relaxed);
        return answer;
    }
    submitted_.fetch_add(1, std::memory_order_relaxed);
    poller_.wake();
    answer.status = Status::Ok;
    return answer;
}

Status DeviceQueue::cancel(JobId job) noexcept {
    QueueCommand command{.kind = QueueCommand::Kind::Cancel, .id = job};
    if (!commands_.push(std::move(command))) {
        return Status::Full;
    }
    poller_.wake();
    return Status::Ok;
}

Status DeviceQueue::reset() noexcept {
    QueueCommand command{.kind = QueueCommand::Kind::Reset};
    if (!commands_.push(std::move(command))) {
        return Status::Full;
    }
    poller_.wake();
    return Status::Ok;
}

void DeviceQueue::dispatch() noexcept {
    for (const std::uint64_t token : poller_.take()) {
        if ((token & kLaneToken) != 0) {
            take_events(token & ~kLaneToken);
            continue;
        }
        const std::size_t place = (token >> 8) & 0xFFFFFF;
        const std::size_t binding = token & 0xFF;
        const bool is_this = place < active_.size() && active_[place].state == JobState::Fences &&
                             fence_token(active_[place].generation, place, binding) == token;
        if (is_this) {
            look_at_fence(place, binding);
        }
    }
    std::size_t taken = 0;
    while (taken < options_.jobs_max && commands_.pop(command_)) {
        ++taken;
        take_command(command_);
    }
    if (taken == options_.jobs_max) {
        poller_.wake();  // there may be more
    }
    const std::int64_t now_ns = monotonic_ns();
    check_limits(now_ns);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
        feed(lane, now_ns);
    }
    arm();
}

void DeviceQueue::take_command(QueueCommand& command) noexcept {
    switch (command.kind) {
        case QueueCommand::Kind::Submit: take_job(command); return;
        case QueueCommand::Kind::Cancel:
            if (const std::size_t place = command.id == 0 ? kNone : find(command.id); place != kNone) {
                cancel_now(place);
            }
            return;
        case QueueCommand::Kind::Reset: reset_now(); return;
    }
}

std::size_t DeviceQueue::find(JobId id) const noexcept {
    for (std::size_t i = 0; i < active_.size(); ++i) {
        if (active_[i].state != JobState::Free && active_[i].id == id) {
            return i;
        }
    }
    return kNone;
}

void DeviceQueue::take_job(QueueCommand& command) noexcept {
    // submit() counts the places: one is free.
    const auto free =
        std::find_if(active_.begin(), active_.end(), [](const ActiveJob& a) { return a.state == JobState::Free; });
    PERCEPTD_ASSERT(free != active_.end());
    const auto place = static_cast<std::size_t>(free - active_.begin());
    ActiveJob& active = *free;
    active.state = JobState::Fences;
    active.id = command.id;
    active.lane = 0;
    active.job = std::move(command.job);
    active.out_fence = std::move(command.out_fence);
    active.submitted_at_ns = command.at_ns;
    active.device_ns = 0;
    active.fences_left = 0;
    active.is_cancelled = false;
    active.is_bound = resources_.accepts(active.job);
    if (!active.is_bound) {
        finish(place, JobStatus::Invalid);
        return;
    }
    resources_.hold_job(active.job);
    for (std::size_t i = 0; i < 2 * kBindingsMax; ++i) {
        Binding& binding = binding_at(active.job, i);
        if (is_used(active.job, i) && binding.acquire_fence) {
            ++active.fences_left;
            if (poller_.watch(binding.acquire_fence.borrow(), fence_token(active.generation, place, i)) != Status::Ok) {
                finish(place, JobStatus::Invalid);  // nothing that one can wait for
                return;
            }
        }
    }
    if (active.fences_left == 0) {
        choose_lane(place, 0);
    }
}

void DeviceQueue::look_at_fence(std::size_t place, std::size_t index) noexcept {
    ActiveJob& active = active_[place];
    Binding& binding = binding_at(active.job, index);
    const fence::FenceState state = fence::state_of(binding.acquire_fence.borrow(), binding.acquire_kind);
    if (state == fence::FenceState::Pending) {
        return;
    }
    if (state != fence::FenceState::Signalled) {
        finish(place, JobStatus::DependencyLost);
        return;
    }
    forget_fence(binding);
    if (--active.fences_left == 0) {
        choose_lane(place, 0);
    }
}

void DeviceQueue::forget_fence(Binding& binding) noexcept {
    if (binding.acquire_fence) {
        // By hand: whoever gave it has another descriptor of the same file, and epoll would go on for that one.
        poller_.forget(binding.acquire_fence.borrow());
        binding.acquire_fence.reset();
    }
}

void DeviceQueue::cancel_now(std::size_t place) noexcept {
    ActiveJob& active = active_[place];
    if (active.state != JobState::Held) {
        finish(place, JobStatus::Cancelled);
        return;
    }
    // Once: a client that cancels for ever must not fill the device's ears.
    if (!std::exchange(active.is_cancelled, true)) {
        lanes_[active.lane].device->cancel(active.id);
    }
}

void DeviceQueue::reset_now() noexcept {
    std::uint64_t lanes_with_jobs = 0;  // that were not told already
    for (std::size_t place = 0; place < active_.size(); ++place) {
        ActiveJob& active = active_[place];
        if (active.state == JobState::Held) {
            lanes_with_jobs |= std::exchange(active.is_cancelled, true) ? 0 : std::uint64_t{1} << active.lane;
        } else if (active.state != JobState::Free) {
            finish(place, JobStatus::Cancelled);
        }
    }
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
        if ((lanes_with_jobs >> lane & 1) != 0) {
            lanes_[lane].device->reset();
        }
    }
}

void DeviceQueue::finish(std::size_t place, JobStatus status) noexcept {
    ActiveJob& active = active_[place];
    const std::int64_t now_ns = monotonic_ns();
    if (active.state == JobState::Ready) {
        lanes_[active.lane].scheduler.remove(place, 0, false, now_ns);
    }
    for (std::size_t i = 0; i < 2 * kBindingsMax; ++i) {
        forget_fence(binding_at(active.job, i));
    }
    gone_buffers_.clear();
    if (active.is_bound) {
        resources_.drop_job(active.job, gone_buffers_);
    }
    const Completion completion{.id = active.id,
                                .cookie = active.job.cookie,
                                .status = status,
                                .device_index = static_cast<std::uint32_t>(active.lane),
                                .submitted_at_ns = active.submitted_at_ns,
                                .finished_at_ns = now_ns,
                                .device_ns = active.device_ns};
    fence::end_pipe(active.out_fence, status == JobStatus::Ok);
    active.state = JobState::Free;
    active.id = 0;
    ++active.generation;
    ++counters_.completed;
    counters_.dependency_lost += status == JobStatus::DependencyLost ? 1 : 0;
    under_way_.fetch_sub(1, std::memory_order_relaxed);
    // Handlers may release and import: what they need to hear is out of the members first.
    std::array<BufferId, 2 * kBindingsMax> gone{};
    const std::size_t gone_count = gone_buffers_.size();
    std::copy(gone_buffers_.begin(), gone_buffers_.end(), gone.begin());
    if (on_completion) {
        on_completion(completion);
    }
    for (std::size_t i = 0; i < gone_count && on_buffer_gone; ++i) {
        on_buffer_gone(gone[i]);
    }
}

AdmissionVerdict DeviceQueue::open_flow(const FlowRequest& request) {
    AdmissionVerdict verdict = admission_.admit(request, monotonic_ns());
    if (verdict.flow != 0) {
        for (Lane& lane : lanes_) {
            lane.scheduler.open_flow(verdict.flow, request);
        }
    }
    return verdict;
}

void DeviceQueue::close_flow(FlowId flow) noexcept {
    admission_.release(flow);
    for (Lane& lane : lanes_) {
        lane.scheduler.close_flow(flow);
    }
}

QueueCounters DeviceQueue::counters() const noexcept {
    QueueCounters counters = counters_;
    counters.submitted = submitted_.load(std::memory_order_relaxed);
    return counters;
}

}  // namespace perceptd::queue

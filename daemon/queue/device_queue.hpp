// The queue in front of an ordered list of devices: jobs in from any thread, each to the first device that can do it,
// in the scheduler's order; out-fences and completions back. Owns the devices, the jobs under way and what they use.
// Never blocks, never waits for a fence in a thread, never loses a job: each ends exactly once, with a status, and its
// fence says the same to whoever waits in any process. A job whose device dies is run again on the next one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/mpsc_ring.hpp"
#include "queue/active_job.hpp"
#include "queue/admission.hpp"
#include "queue/device_queue_options.hpp"
#include "queue/lane.hpp"
#include "queue/poller.hpp"
#include "queue/resources.hpp"

namespace perceptd::queue {

/// Threads: submit(), cancel() and reset() from any; all else on the one thread that calls dispatch(). Handlers are
/// called by dispatch() and may call everything but dispatch(); they must not throw.
class DeviceQueue {
public:
    using CompletionHandler = std::function<void(const Completion&)>;
    /// Ok: jobs can be submitted (they can before, and wait). Otherwise no device could load it: unload it.
    using ProgramHandler = std::function<void(ProgramId, JobStatus, std::string_view reason)>;
    using BufferHandler = std::function<void(BufferId)>;
    using DeviceHandler = std::function<void(std::size_t device_index, std::string_view reason)>;

    /// Devices in the order of preference; the CPU last. Throws std::system_error.
    DeviceQueue(std::vector<std::unique_ptr<Device>> devices, const DeviceQueueOptions& options);
    /// Fences of jobs under way end as lost; nobody is told.
    ~DeviceQueue();
    DeviceQueue(const DeviceQueue&) = delete;
    DeviceQueue& operator=(const DeviceQueue&) = delete;

    /// Takes the job with its fences when Ok, and leaves it otherwise. Real-time: no allocation, no lock; without a
    /// fence at most one system call, with one two more.
    [[nodiscard]] Submitted submit(Job&& job, bool wants_fence) noexcept;
    /// The job ends as Cancelled: now where it waits, at the end of its segment where it runs. Ok also when it has
    /// ended. Full: again later. Real-time.
    [[nodiscard]] Status cancel(JobId job) noexcept;
    /// Every job submitted before ends, as Cancelled or as it ended before; buffers, programs and flows stay.
    /// Real-time.
    [[nodiscard]] Status reset() noexcept;

    /// Readable when dispatch() has something to do. Borrowed.
    [[nodiscard]] int fd() const noexcept { return poller_.fd(); }
    /// Does all that can be done now. Real-time but for the handlers.
    void dispatch() noexcept;

    CompletionHandler on_completion;
    ProgramHandler on_program;
    BufferHandler on_buffer_gone;  ///< a release that had to wait has taken effect
    DeviceHandler on_device_lost;

    /// See Resources; a release that returns false is told by on_buffer_gone later.
    [[nodiscard]] BufferId import_buffer(const BufferDescription& buffer) { return resources_.import_buffer(buffer); }
    bool release_buffer(BufferId buffer) noexcept { return resources_.release_buffer(buffer); }
    [[nodiscard]] ProgramId load(Program program) { return resources_.load(std::move(program)); }
    bool unload(ProgramId program) noexcept { return resources_.unload(program); }
    /// A flow, judged by the costs that it states for the first device; jobs that another has to take over keep their
    /// rank there, unproved.
    [[nodiscard]] AdmissionVerdict open_flow(const FlowRequest& request);
    void close_flow(FlowId flow) noexcept;
    /// Tries to bring a lost device back, with all buffers and programs. True: it is good again.
    bool revive(std::size_t device_index);

    [[nodiscard]] std::size_t device_count() const noexcept { return lanes_.size(); }
    [[nodiscard]] const Device& device(std::size_t index) const noexcept { return *lanes_[index].device; }
    [[nodiscard]] const Scheduler& scheduler(std::size_t index) const noexcept { return lanes_[index].scheduler; }
    [[nodiscard]] QueueCounters counters() const noexcept;

private:
    static constexpr std::size_t kNone = SIZE_MAX;

    static std::vector<Lane> lanes_of(std::vector<std::unique_ptr<Device>> devices, const DeviceQueueOptions& options);
    [[nodiscard]] std::vector<Device*> borrowed() const;
    [[nodiscard]] std::size_t find(JobId id) const noexcept;
    [[nodiscard]] std::size_t find_held(std::size_t lane, JobId id) const noexcept;
    [[nodiscard]] bool is_good(std::size_t lane) const noexcept;
    void take_command(QueueCommand& command) noexcept;
    void take_job(QueueCommand& command) noexcept;
    void look_at_fence(std::size_t place, std::size_t binding) noexcept;
    void forget_fence(Binding& binding) noexcept;
    void choose_lane(std::size_t place, std::size_t first_lane) noexcept;
    void choose_again(JobState state) noexcept;
    void move_away(std::size_t place) noexcept;
    void cancel_now(std::size_t place) noexcept;
    void reset_now() noexcept;
    void take_events(std::size_t lane) noexcept;
    void job_ended(std::size_t lane, const DeviceEvent& event) noexcept;
    void program_loaded(std::size_t lane, const DeviceEvent& event) noexcept;
    void grant_spent(std::size_t lane, const DeviceEvent& event) noexcept;
    void lane_lost(std::size_t lane, std::string_view reason) noexcept;
    void check_limits(std::int64_t now_ns) noexcept;
    void feed(std::size_t lane, std::int64_t now_ns) noexcept;
    [[nodiscard]] Status hand_over(std::size_t lane, const Assignment& assignment) noexcept;
    void finish(std::size_t place, JobStatus status) noexcept;
    void arm() noexcept;
    [[nodiscard]] std::int64_t limit_of(const Lane& lane) const noexcept;

    DeviceQueueOptions options_;
    Poller poller_;
    std::vector<Lane> lanes_;
    Resources resources_;
    Admission admission_;
    MpscRing<QueueCommand> commands_;
    std::atomic<std::uint64_t> last_id_{0};
    std::atomic<std::size_t> under_way_{0};
    std::atomic<std::uint64_t> submitted_{0};
    std::vector<ActiveJob> active_;
    std::vector<BufferId> gone_buffers_;
    QueueCommand command_;  // the one being taken: its bindings are too many for the stack of a loop
    QueueCounters counters_;
};

}  // namespace perceptd::queue

// Which ready job a device gets next, with which rank and for how long. Owns the flows' servers and the list of ready
// jobs; knows jobs by their place in the caller's table. Never looks at a clock, a device or a thread: all times are
// given, so the simulator of the tests runs this very code.
//
// Earliest deadline first, with the flow's deadlines: a client cannot buy urgency with a date of its own, nor time
// beyond the flow's cost (the rest of such a job runs behind everybody else's). Text has a constant-bandwidth server
// per flow: budget Q every P under the server's deadline, refilled one period later when it is spent, so it takes idle
// time too. Tiers: admitted flows, then foreground work without a flow, then background work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "queue/device.hpp"
#include "queue/flow.hpp"

namespace perceptd::queue {

struct SchedulerOptions {
    std::size_t jobs_max = 256;
    std::size_t flows_max = 64;
    std::uint32_t depth = 2;    ///< jobs that the device is to hold: one runs, one is ready behind it
    bool is_preemptive = true;  ///< what the device says about itself
    /// DRAM bytes a second that BestEffort jobs may begin with; 0: no budget.
    std::uint64_t traffic_bytes_per_s = 0;
    std::uint64_t traffic_burst_bytes = 0;  ///< what may be saved up
};

/// What the device is told about a job.
struct Assignment {
    std::size_t place = 0;  ///< in the caller's table
    Rank rank;
    std::int64_t grant_ns = kUnlimitedNs;
};

struct ClassCounters {
    std::uint64_t ready = 0;  ///< jobs that came
    std::uint64_t ended = 0;
    std::uint64_t dropped = 0;   ///< Soft: never begun, could not be in time
    std::uint64_t late = 0;      ///< ended after their deadline; for Hard this is a fault
    std::uint64_t overruns = 0;  ///< took longer than their flow's cost
    std::int64_t ran_ns = 0;
};

/// Thread-bound. Real-time but for the constructor, open_flow() and close_flow(): no allocation, and every function
/// looks at each of jobs_max jobs and flows_max flows at most once.
class Scheduler {
public:
    explicit Scheduler(const SchedulerOptions& options);

    /// An admitted flow. Throws Error(QuotaExceeded) beyond flows_max, Error(InvalidArgument) for an id that is open.
    void open_flow(FlowId flow, const FlowRequest& request);
    /// Jobs of it that are still there go on as jobs without a flow.
    void close_flow(FlowId flow) noexcept;

    /// The job at `place` is ready: nothing it waits for is left. Invalid: the place is taken or too large, a Hard job
    /// without its flow, a flow of another class; a Soft job without deadline.
    [[nodiscard]] Status add(std::size_t place, const Job& job, std::int64_t now_ns) noexcept;
    /// The next Soft job that cannot be in time any more, oldest deadline first; it is forgotten. False: none.
    [[nodiscard]] bool drop(std::int64_t now_ns, std::size_t& place) noexcept;
    /// The next job for the device; call until false, after every add(), spent() and remove().
    [[nodiscard]] bool pick(std::int64_t now_ns, Assignment& assignment) noexcept;
    /// The device could not take what was picked: it is ready again.
    void put_back(std::size_t place) noexcept;
    /// The device has used up the job's time (`ran_ns` in all): what it gets now.
    [[nodiscard]] Assignment spent(std::size_t place, std::int64_t ran_ns, std::int64_t now_ns) noexcept;
    /// The job has left the device (or never got there). `is_done`: it counts as ended.
    void remove(std::size_t place, std::int64_t ran_ns, bool is_done, std::int64_t now_ns) noexcept;
    /// When drop() or pick() may have something new without anything happening; kUnlimitedNs: never.
    [[nodiscard]] std::int64_t next_change_ns() const noexcept;

    [[nodiscard]] const ClassCounters& counters(JobClass job_class) const noexcept {
        return counters_[static_cast<std::size_t>(job_class)];
    }
    /// BestEffort time that one server has had; 0 for a flow that is not open.
    [[nodiscard]] std::int64_t served_ns(FlowId flow) const noexcept;

private:
    static constexpr std::uint32_t kNoFlow = 0xFFFFFFFF;
    enum class State : std::uint8_t { Free, Ready, Held };
    struct Entry {
        State state = State::Free;
        JobClass job_class = JobClass::BestEffort;
        bool is_overrun = false;
        std::uint32_t flow_index = kNoFlow;
        Rank rank;
        std::int64_t deadline_ns = 0;  // the job's own, 0: none
        std::int64_t cost_ns = 0;
        std::int64_t ran_ns = 0;
        std::uint64_t traffic_bytes = 0;
        std::uint64_t order = 0;
    };
    struct Flow {
        FlowId id = 0;  // 0: free
        FlowRequest request;
        std::int64_t next_release_ns = INT64_MIN;  // Hard and Soft: jobs that come earlier count from here
        std::int64_t budget_ns = 0;                // BestEffort: left until `deadline_ns`
        std::int64_t deadline_ns = 0;
        std::int64_t served_ns = 0;
        std::uint32_t jobs = 0;  // BestEffort: ready or held
        bool has_held = false;   // BestEffort: one job at a time has the server
    };

    [[nodiscard]] std::uint32_t index_of(FlowId flow) const noexcept;
    static void wake(Flow& flow, std::int64_t now_ns) noexcept;
    void charge(Entry& entry, std::int64_t ran_ns) noexcept;
    [[nodiscard]] Rank rank_of(const Entry& entry) const noexcept;
    [[nodiscard]] Flow* server_of(const Entry& entry) noexcept;
    [[nodiscard]] bool may_go(const Entry& entry) const noexcept;
    [[nodiscard]] Assignment assignment_of(std::size_t place) noexcept;
    void refill(std::int64_t now_ns) noexcept;

    SchedulerOptions options_;
    std::vector<Entry> entries_;
    std::vector<Flow> flows_;
    std::array<ClassCounters, 3> counters_;
    std::uint64_t arrivals_ = 0;
    std::int64_t traffic_level_bytes_ = 0;
    std::int64_t traffic_at_ns_ = 0;
};

}  // namespace perceptd::queue

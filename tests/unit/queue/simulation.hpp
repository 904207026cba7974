// A device in simulated time: the daemon's Scheduler and RunQueue, and a clock that jumps from event to event. Owns
// both. What it adds is only how long segments take; every decision is made by the daemon's code.
#pragma once

#include <cstdint>
#include <vector>

#include "queue/run_queue.hpp"
#include "queue/scheduler.hpp"

namespace simulation {

/// One flow's jobs: how they come and how long they really take.
struct Source {
    perceptd::queue::FlowRequest request;
    std::int64_t first_ns = 0;
    std::int64_t work_ns = 0;    ///< 0: cost_ns
    std::int64_t jitter_ns = 0;  ///< added to each period, from 0 to this
    bool is_backlogged = false;  ///< always one more job waiting
    bool has_flow = true;
    bool is_foreground = true;
    std::int64_t date_ns = 0;  ///< the deadline that the client writes into its jobs, relative; 0: none
    std::uint64_t traffic_bytes = 0;
};

struct Outcome {
    std::uint64_t done = 0;
    std::uint64_t missed = 0;  ///< done after arrival + deadline_ns, or not done at the end though due
    std::uint64_t dropped = 0;
    std::int64_t ran_ns = 0;
    std::int64_t worst_response_ns = 0;
};

class Simulation {
public:
    Simulation(const std::vector<Source>& sources, perceptd::queue::SchedulerOptions options, std::uint64_t seed = 1);

    /// Goes on until `end_ns`.
    void run_until(std::int64_t end_ns);
    [[nodiscard]] const Outcome& outcome(std::size_t source) const { return outcomes_[source]; }
    [[nodiscard]] const perceptd::queue::Scheduler& scheduler() const { return scheduler_; }
    [[nodiscard]] std::int64_t idle_ns() const { return idle_ns_; }
    /// Jobs of Hard sources that are overdue now or ended late.
    [[nodiscard]] std::uint64_t hard_misses() const;

private:
    struct Task {
        bool is_used = false;
        std::size_t source = 0;
        std::int64_t arrived_ns = 0;
        std::int64_t left_ns = 0;
    };
    void arrive();
    void add(std::size_t source);
    void hand_out();
    void run_segment(std::int64_t end_ns);
    std::uint64_t random() { return state_ = state_ * 6364136223846793005U + 1442695040888963407U, state_ >> 33; }

    std::vector<Source> sources_;
    std::vector<std::int64_t> next_ns_;
    std::vector<std::uint32_t> waiting_;
    std::vector<Outcome> outcomes_;
    std::vector<Task> tasks_;
    perceptd::queue::Scheduler scheduler_;
    perceptd::queue::RunQueue device_;
    std::uint64_t state_;
    std::int64_t now_ns_ = INT64_MIN;
    std::int64_t idle_ns_ = 0;
};

}  // namespace simulation

#include "unit/queue/simulation.hpp"

#include <algorithm>
#include <stdexcept>

namespace simulation {

using namespace perceptd;
using namespace perceptd::queue;

Simulation::Simulation(const std::vector<Source>& sources, SchedulerOptions options, std::uint64_t seed)
    : sources_(sources),
      waiting_(sources.size()),
      outcomes_(sources.size()),
      tasks_(options.jobs_max),
      scheduler_(options),
      device_(options.jobs_max),
      state_(seed) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        next_ns_.push_back(sources_[i].first_ns);
        if (sources_[i].has_flow) {
            scheduler_.open_flow(static_cast<FlowId>(i + 1), sources_[i].request);
        }
    }
    now_ns_ = next_ns_.empty() ? 0 : *std::min_element(next_ns_.begin(), next_ns_.end());
}

void Simulation::add(std::size_t source) {
    const auto place = std::find_if(tasks_.begin(), tasks_.end(), [](const Task& task) { return !task.is_used; });
    if (place == tasks_.end()) {
        throw std::runtime_error("more jobs than the simulation holds");
    }
    const Source& from = sources_[source];
    *place = {true, source, now_ns_, from.work_ns > 0 ? from.work_ns : from.request.cost_ns};
    Job job;
    job.job_class = from.request.job_class;
    job.is_foreground = from.is_foreground;
    job.flow = from.has_flow ? static_cast<FlowId>(source + 1) : 0;
    job.deadline_ns = from.date_ns > 0 ? now_ns_ + from.date_ns : 0;
    job.traffic_bytes = from.traffic_bytes;
    if (scheduler_.add(static_cast<std::size_t>(place - tasks_.begin()), job, now_ns_) != Status::Ok) {
        throw std::runtime_error("the scheduler refuses a job");
    }
    ++waiting_[source];
}

void Simulation::arrive() {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        if (sources_[i].is_backlogged) {
            while (next_ns_[i] <= now_ns_ && waiting_[i] < 2) {
                add(i);
            }
            continue;
        }
        while (next_ns_[i] <= now_ns_) {
            add(i);
            const std::int64_t jitter_ns = sources_[i].jitter_ns;
            next_ns_[i] += sources_[i].request.period_ns +
                           (jitter_ns > 0 ? static_cast<std::int64_t>(random() % (jitter_ns + 1)) : 0);
        }
    }
}

void Simulation::hand_out() {
    std::size_t place = 0;
    while (scheduler_.drop(now_ns_, place)) {
        ++outcomes_[tasks_[place].source].dropped;
        --waiting_[tasks_[place].source];
        tasks_[place] = {};
    }
    Assignment assignment;
    while (scheduler_.pick(now_ns_, assignment)) {
        if (device_.add(assignment.place + 1, assignment.rank, assignment.grant_ns) == RunQueue::kNone) {
            throw std::runtime_error("the device is full");
        }
    }
}

void Simulation::run_segment(std::int64_t end_ns) {
    const std::size_t held = device_.next();
    if (held == RunQueue::kNone) {
        std::int64_t next_ns = std::min(end_ns, scheduler_.next_change_ns());
        for (std::size_t i = 0; i < sources_.size(); ++i) {
            if (!sources_[i].is_backlogged || next_ns_[i] > now_ns_) {
                next_ns = std::min(next_ns, next_ns_[i]);
            }
        }
        next_ns = std::max(next_ns, now_ns_ + 1);
        idle_ns_ += next_ns - now_ns_;
        now_ns_ = next_ns;
        return;
    }
    const std::size_t place = device_.at(held).id - 1;
    Task& task = tasks_[place];
    const Source& source = sources_[task.source];
    const std::int64_t segment_ns = std::min(task.left_ns, source.request.segment_ns);
    const std::int64_t segment_end_ns = now_ns_ + segment_ns;
    // Who comes during the segment is seen at its time, so that deadlines count from there.
    for (;;) {
        std::int64_t next_ns = segment_end_ns;
        for (std::size_t i = 0; i < sources_.size(); ++i) {
            next_ns = sources_[i].is_backlogged && next_ns_[i] <= now_ns_ ? next_ns : std::min(next_ns, next_ns_[i]);
        }
        if (next_ns >= segment_end_ns) {
            break;
        }
        now_ns_ = next_ns;
        arrive();
        hand_out();
    }
    now_ns_ = segment_end_ns;
    task.left_ns -= segment_ns;
    Outcome& outcome = outcomes_[task.source];
    outcome.ran_ns += segment_ns;
    const bool is_spent = device_.charge(held, segment_ns);
    const std::int64_t ran_ns = device_.at(held).ran_ns;
    if (task.left_ns == 0) {
        const std::int64_t response_ns = now_ns_ - task.arrived_ns;
        ++outcome.done;
        outcome.missed += response_ns > source.request.deadline_ns ? 1 : 0;
        outcome.worst_response_ns = std::max(outcome.worst_response_ns, response_ns);
        scheduler_.remove(place, ran_ns, true, now_ns_);
        device_.remove(held);
        --waiting_[task.source];
        task = {};
    } else if (is_spent) {
        const Assignment more = scheduler_.spent(place, ran_ns, now_ns_);
        device_.grant(place + 1, more.rank, more.grant_ns);
    }
}

void Simulation::run_until(std::int64_t end_ns) {
    while (now_ns_ < end_ns) {
        arrive();
        hand_out();
        run_segment(end_ns);
    }
}

std::uint64_t Simulation::hard_misses() const {
    std::uint64_t misses = 0;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        misses += sources_[i].request.job_class == JobClass::Hard ? outcomes_[i].missed : 0;
    }
    for (const Task& task : tasks_) {
        const bool is_due = task.is_used && now_ns_ - task.arrived_ns > sources_[task.source].request.deadline_ns;
        misses += is_due && sources_[task.source].request.job_class == JobClass::Hard ? 1 : 0;
    }
    return misses;
}

}  // namespace simulation

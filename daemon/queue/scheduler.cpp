#include "queue/scheduler.hpp"

#include <algorithm>
#include <string>

#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::queue {
namespace {

using Wide = __int128;

enum Tier : std::uint32_t { kTierFlows = 0, kTierOthers = 1, kTierBackground = 2 };

/// Text without a flow has no date: it comes behind all that have one, in turns.
constexpr std::int64_t kTurnsFromNs = INT64_MAX / 2;
constexpr std::int64_t kTurnNs = 10'000'000;

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      entries_(options.jobs_max),
      flows_(options.flows_max),
      counters_{},
      traffic_level_bytes_(static_cast<std::int64_t>(options.traffic_burst_bytes)) {
    PERCEPTD_ASSERT(options.depth > 0);
}

void Scheduler::open_flow(FlowId flow, const FlowRequest& request) {
    if (flow == 0 || index_of(flow) != kNoFlow) {
        throw Error(ErrorCode::InvalidArgument,
                    "flow " + std::to_string(flow) + " is open already or no flow; use what admission gave");
    }
    const auto free =
        std::find_if(flows_.begin(), flows_.end(), [](const Flow& candidate) { return candidate.id == 0; });
    if (free == flows_.end()) {
        Error error(ErrorCode::QuotaExceeded, "no room for another flow; close one first");
        error.limit = flows_.size();
        error.used = flows_.size();
        throw error;
    }
    *free = Flow{.id = flow, .request = request, .budget_ns = request.cost_ns, .deadline_ns = INT64_MIN};
}

void Scheduler::close_flow(FlowId flow) noexcept {
    const std::uint32_t index = index_of(flow);
    if (index == kNoFlow) {
        return;
    }
    for (Entry& entry : entries_) {
        if (entry.state != State::Free && entry.flow_index == index) {
            entry.flow_index = kNoFlow;
            entry.rank = {kTierOthers, entry.job_class == JobClass::BestEffort
                                           ? kTurnsFromNs + static_cast<std::int64_t>(++arrivals_)
                                           : entry.deadline_ns};
        }
    }
    flows_[index] = {};
}

std::uint32_t Scheduler::index_of(FlowId flow) const noexcept {
    for (std::size_t i = 0; flow != 0 && i < flows_.size(); ++i) {
        if (flows_[i].id == flow) {
            return static_cast<std::uint32_t>(i);
        }
    }
    return kNoFlow;
}

Scheduler::Flow* Scheduler::server_of(const Entry& entry) noexcept {
    const bool has_server = entry.job_class == JobClass::BestEffort && entry.flow_index != kNoFlow;
    return has_server ? &flows_[entry.flow_index] : nullptr;
}

Rank Scheduler::rank_of(const Entry& entry) const noexcept {
    if (entry.job_class == JobClass::BestEffort && entry.flow_index != kNoFlow) {
        return {kTierFlows, flows_[entry.flow_index].deadline_ns};
    }
    return entry.rank;
}

Status Scheduler::add(std::size_t place, const Job& job, std::int64_t now_ns) noexcept {
    const std::uint32_t named = index_of(job.flow);
    const bool is_hard = job.job_class == JobClass::Hard;
    if (place >= entries_.size() || entries_[place].state != State::Free || (job.flow != 0 && named == kNoFlow) ||
        (named != kNoFlow && flows_[named].request.job_class != job.job_class) || (is_hard && named == kNoFlow) ||
        (job.job_class == JobClass::Soft && named == kNoFlow && job.deadline_ns <= 0) || job.cost_ns < 0) {
        return Status::Invalid;
    }
    Entry entry;
    entry.state = State::Ready;
    entry.job_class = job.job_class;
    entry.deadline_ns = job.deadline_ns;
    entry.cost_ns = job.cost_ns;
    entry.traffic_bytes = std::min<std::uint64_t>(job.traffic_bytes, INT64_MAX / 4);
    entry.order = ++arrivals_;
    // Background work lives on what is left, also where its client has a flow.
    entry.flow_index = is_hard || job.is_foreground ? named : kNoFlow;
    if (entry.flow_index == kNoFlow) {
        const auto turn = kTurnsFromNs + static_cast<std::int64_t>(entry.order);
        entry.rank = {job.is_foreground ? kTierOthers : kTierBackground, job.deadline_ns > 0 ? job.deadline_ns : turn};
    } else if (job.job_class == JobClass::BestEffort) {
        Flow& server = flows_[entry.flow_index];
        if (server.jobs++ == 0) {
            wake(server, now_ns);
        }
    } else {
        Flow& flow = flows_[entry.flow_index];
        const std::int64_t release_ns = std::max(now_ns, flow.next_release_ns);
        flow.next_release_ns = release_ns + flow.request.period_ns;
        entry.rank = {kTierFlows, release_ns + flow.request.deadline_ns};
        entry.deadline_ns = is_hard || job.deadline_ns <= 0 ? entry.rank.deadline_ns : job.deadline_ns;
        entry.cost_ns = flow.request.cost_ns;
    }
    entries_[place] = entry;
    ++counters_[static_cast<std::size_t>(job.job_class)].ready;
    return Status::Ok;
}

void Scheduler::wake(Flow& flow, std::int64_t now_ns) noexcept {
    // What is left of the budget may be kept only if using it now would not exceed the share.
    const bool is_over = flow.deadline_ns <= now_ns;
    const std::int64_t left_ns = is_over ? 0 : flow.deadline_ns - now_ns;
    const bool fits = !is_over && Wide(flow.budget_ns) * flow.request.period_ns < Wide(left_ns) * flow.request.cost_ns;
    if (fits) {
        return;
    }
    // A debt from the last segment is forgiven when the pause since has paid for it.
    const bool is_paid =
        flow.budget_ns >= 0 ||
        (is_over && (flow.deadline_ns == INT64_MIN || Wide(now_ns - flow.deadline_ns) * flow.request.cost_ns >=
                                                          Wide(-flow.budget_ns) * flow.request.period_ns));
    flow.budget_ns = flow.request.cost_ns + (is_paid ? 0 : flow.budget_ns);
    flow.deadline_ns = now_ns + flow.request.period_ns;
}

bool Scheduler::drop(std::int64_t now_ns, std::size_t& place) noexcept {
    std::size_t oldest = entries_.size();
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const Entry& entry = entries_[i];
        const bool is_hopeless = entry.state == State::Ready && entry.job_class == JobClass::Soft &&
                                 entry.ran_ns == 0 && entry.deadline_ns - entry.cost_ns < now_ns;
        if (is_hopeless && (oldest == entries_.size() || entry.deadline_ns < entries_[oldest].deadline_ns)) {
            oldest = i;
        }
    }
    if (oldest == entries_.size()) {
        return false;
    }
    ++counters_[static_cast<std::size_t>(JobClass::Soft)].dropped;
    entries_[oldest] = {};
    place = oldest;
    return true;
}

bool Scheduler::may_go(const Entry& entry) const noexcept {
    if (entry.job_class != JobClass::BestEffort) {
        return true;
    }
    const bool is_served = entry.flow_index != kNoFlow && flows_[entry.flow_index].has_held;
    const bool is_starved = options_.traffic_bytes_per_s > 0 && entry.traffic_bytes > 0 && traffic_level_bytes_ <= 0;
    return !is_served && !is_starved;
}

bool Scheduler::pick(std::int64_t now_ns, Assignment& assignment) noexcept {
    refill(now_ns);
    std::size_t best = entries_.size();
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (entries_[i].state != State::Ready || !may_go(entries_[i])) {
            continue;
        }
        const Rank rank = rank_of(entries_[i]);
        const Rank lowest = best == entries_.size() ? Rank{} : rank_of(entries_[best]);
        if (best == entries_.size() || rank < lowest || (rank == lowest && entries_[i].order < entries_[best].order)) {
            best = i;
        }
    }
    if (best == entries_.size()) {
        return false;
    }
    // A preemptive device sorts what it holds: it must hold the most urgent ones. Any other takes them as they come.
    const Rank rank = rank_of(entries_[best]);
    std::uint32_t ahead = 0;
    for (const Entry& held : entries_) {
        ahead += held.state == State::Held && (!options_.is_preemptive || rank_of(held) <= rank) ? 1 : 0;
    }
    if (ahead >= options_.depth) {
        return false;
    }
    Entry& entry = entries_[best];
    entry.state = State::Held;
    if (Flow* const server = server_of(entry)) {
        server->has_held = true;
    }
    traffic_level_bytes_ -= static_cast<std::int64_t>(entry.traffic_bytes);
    traffic_level_bytes_ = std::max<std::int64_t>(traffic_level_bytes_, INT64_MIN / 4);
    assignment = assignment_of(best);
    return true;
}

Assignment Scheduler::assignment_of(std::size_t place) noexcept {
    const Entry& entry = entries_[place];
    Assignment assignment{.place = place, .rank = rank_of(entry), .grant_ns = kUnlimitedNs};
    if (const Flow* const server = server_of(entry)) {
        assignment.grant_ns = server->budget_ns;
    } else if (entry.flow_index != kNoFlow && !entry.is_overrun) {
        assignment.grant_ns = entry.cost_ns - entry.ran_ns;
    } else if (entry.job_class == JobClass::BestEffort) {
        assignment.grant_ns = kTurnNs;
    }
    return assignment;
}

void Scheduler::put_back(std::size_t place) noexcept {
    Entry& entry = entries_[place];
    entry.state = State::Ready;
    if (Flow* const server = server_of(entry)) {
        server->has_held = false;
    }
    traffic_level_bytes_ += static_cast<std::int64_t>(entry.traffic_bytes);
}

void Scheduler::charge(Entry& entry, std::int64_t ran_ns) noexcept {
    const std::int64_t more_ns = std::max<std::int64_t>(ran_ns - entry.ran_ns, 0);
    entry.ran_ns += more_ns;
    counters_[static_cast<std::size_t>(entry.job_class)].ran_ns += more_ns;
    Flow* const server = server_of(entry);
    if (server == nullptr) {
        return;
    }
    server->served_ns += more_ns;
    server->budget_ns -= more_ns;
    if (server->budget_ns <= 0) {
        // As many periods as the debt takes: one, unless a device without segments ran a whole job.
        const std::int64_t refills = -server->budget_ns / server->request.cost_ns + 1;
        server->budget_ns += refills * server->request.cost_ns;
        server->deadline_ns += refills * server->request.period_ns;
    }
}

Assignment Scheduler::spent(std::size_t place, std::int64_t ran_ns, std::int64_t) noexcept {
    Entry& entry = entries_[place];
    charge(entry, ran_ns);
    if (entry.flow_index == kNoFlow) {
        if (entry.job_class == JobClass::BestEffort && entry.rank.deadline_ns >= kTurnsFromNs) {
            entry.rank.deadline_ns = kTurnsFromNs + static_cast<std::int64_t>(++arrivals_);
        }
    } else if (entry.job_class != JobClass::BestEffort && !entry.is_overrun) {
        entry.is_overrun = true;
        entry.rank.tier = kTierBackground;
        ++counters_[static_cast<std::size_t>(entry.job_class)].overruns;
    }
    return assignment_of(place);
}

void Scheduler::remove(std::size_t place, std::int64_t ran_ns, bool is_done, std::int64_t now_ns) noexcept {
    Entry& entry = entries_[place];
    if (entry.state == State::Free) {
        return;
    }
    charge(entry, ran_ns);
    ClassCounters& counters = counters_[static_cast<std::size_t>(entry.job_class)];
    if (is_done) {
        ++counters.ended;
        counters.late += entry.deadline_ns > 0 && now_ns > entry.deadline_ns ? 1 : 0;
        // A device without segments cannot be stopped at the flow's cost: it is seen here.
        const bool is_over = entry.flow_index != kNoFlow && entry.job_class != JobClass::BestEffort &&
                             !entry.is_overrun && entry.ran_ns > entry.cost_ns;
        counters.overruns += is_over ? 1 : 0;
    }
    if (Flow* const server = server_of(entry)) {
        --server->jobs;
        server->has_held = server->has_held && entry.state != State::Held;
    }
    entry = {};
}

void Scheduler::refill(std::int64_t now_ns) noexcept {
    const std::int64_t passed_ns = std::max<std::int64_t>(now_ns - traffic_at_ns_, 0);
    const Wide gained = Wide(passed_ns) * options_.traffic_bytes_per_s / 1'000'000'000;
    if (gained > 0) {
        traffic_level_bytes_ = static_cast<std::int64_t>(
            std::min<Wide>(options_.traffic_burst_bytes, Wide(traffic_level_bytes_) + gained));
        traffic_at_ns_ = now_ns;
    }
}

std::int64_t Scheduler::next_change_ns() const noexcept {
    std::int64_t next_ns = kUnlimitedNs;
    for (const Entry& entry : entries_) {
        if (entry.state != State::Ready) {
            continue;
        }
        if (entry.job_class == JobClass::Soft && entry.ran_ns == 0) {
            next_ns = std::min(next_ns, entry.deadline_ns - entry.cost_ns + 1);
        } else if (options_.traffic_bytes_per_s > 0 && entry.traffic_bytes > 0 && traffic_level_bytes_ <= 0) {
            const Wide missing = 1 - Wide(traffic_level_bytes_);
            const Wide wait_ns = missing * 1'000'000'000 / options_.traffic_bytes_per_s + 1;
            next_ns =
                std::min(next_ns, traffic_at_ns_ + static_cast<std::int64_t>(std::min<Wide>(wait_ns, INT64_MAX / 4)));
        }
    }
    return next_ns;
}

std::int64_t Scheduler::served_ns(FlowId flow) const noexcept {
    const std::uint32_t index = index_of(flow);
    return index == kNoFlow ? 0 : flows_[index].served_ns;
}

}  // namespace perceptd::queue

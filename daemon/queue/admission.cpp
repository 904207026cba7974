#include "queue/admission.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace perceptd::queue {
namespace {

using Wide = __int128;

constexpr std::int64_t kPeriodMaxNs = 3'600'000'000'000;  // an hour: sums of products stay far inside 128 bits

std::string text(const char* format, double a, double b, double c = 0) {
    char line[200];
    std::snprintf(line, sizeof(line), format, a, b, c);  // a format may leave c out
    return line;
}

double ms(std::int64_t ns) {
    return static_cast<double>(ns) / 1e6;
}

bool is_server(const FlowRequest& flow) noexcept {
    return flow.job_class == JobClass::BestEffort;
}

std::int64_t deadline_of(const FlowRequest& flow) noexcept {
    return is_server(flow) ? flow.period_ns : flow.deadline_ns;
}

/// What is wrong with a request by itself; empty: nothing.
std::string fault_of(const FlowRequest& flow) {
    if (flow.period_ns <= 0 || flow.period_ns > kPeriodMaxNs || flow.cost_ns <= 0 || flow.segment_ns <= 0) {
        return "period, cost and segment must be above 0 and the period at most an hour; state them in nanoseconds";
    }
    if (!is_server(flow) && (flow.deadline_ns <= 0 || flow.deadline_ns > kPeriodMaxNs)) {
        return "the deadline must be above 0 and at most an hour; state it relative to a job's arrival";
    }
    if (flow.cost_ns > flow.period_ns || flow.cost_ns > deadline_of(flow)) {
        return "a job costs more time than its period or deadline has; ask for less or for a longer period";
    }
    if (!is_server(flow) && flow.segment_ns > flow.cost_ns) {
        return "a segment is longer than the whole job; state the longest stretch that cannot be interrupted";
    }
    return {};
}

/// Work that must be done in [0, t] when all flows begin together, plus the longest that may be in the way.
Wide demand_at(const std::vector<FlowRequest>& flows, std::int64_t t_ns, std::int64_t other_segment_ns) {
    Wide demand = 0;
    std::int64_t blocking_ns = std::max<std::int64_t>(other_segment_ns - 1, 0);
    for (const FlowRequest& flow : flows) {
        const std::int64_t deadline_ns = deadline_of(flow);
        if (deadline_ns > t_ns) {
            blocking_ns = std::max(blocking_ns, flow.segment_ns - 1);
            continue;
        }
        demand += Wide((t_ns - deadline_ns) / flow.period_ns + 1) * flow.cost_ns;
        if (is_server(flow)) {
            demand += flow.segment_ns - 1;
        }
    }
    return demand + blocking_ns;
}

/// The sign of 1 - U: exact where the periods have a small common multiple, otherwise with room for rounding, where 0
/// means "too close to tell". -1: U > 1. The common multiple is 0 when it is too large.
int slack_sign(const std::vector<FlowRequest>& flows, long double& utilisation, std::int64_t& common_period_ns) {
    utilisation = 0;
    Wide common = 1;
    for (const FlowRequest& flow : flows) {
        utilisation += static_cast<long double>(flow.cost_ns) / static_cast<long double>(flow.period_ns);
        if (common != 0) {
            common = common / std::gcd(static_cast<std::int64_t>(common), flow.period_ns) * flow.period_ns;
            if (common > INT64_MAX / 4) {
                common = 0;
            }
        }
    }
    common_period_ns = static_cast<std::int64_t>(common);
    if (common != 0) {
        Wide work = 0;
        for (const FlowRequest& flow : flows) {
            work += common / flow.period_ns * flow.cost_ns;
        }
        return work > common ? -1 : work == common ? 0 : 1;
    }
    constexpr long double kRounding = 1e-15L;
    return utilisation > 1 + kRounding ? -1 : utilisation < 1 - kRounding ? 1 : 0;
}

}  // namespace

std::string misfit_of(const std::vector<FlowRequest>& flows, const AdmissionOptions& options) {
    long double utilisation = 0;
    std::int64_t common_period_ns = 0;
    const int slack = slack_sign(flows, utilisation, common_period_ns);
    if (slack < 0) {
        return text("all shares together are %.3f of the device, %.3f more than there is",
                    static_cast<double>(utilisation), static_cast<double>(utilisation) - 1);
    }
    // Beyond `horizon` nothing can be late: there U * t + what deadlines shorter than periods, servers and others add
    // is at most t, and nobody's deadline is later. With no slack at all, everything repeats with the common period.
    std::int64_t longest_deadline_ns = 0;
    long double excess = static_cast<long double>(std::max<std::int64_t>(options.other_segment_ns - 1, 0));
    for (const FlowRequest& flow : flows) {
        const std::int64_t deadline_ns = deadline_of(flow);
        longest_deadline_ns = std::max(longest_deadline_ns, deadline_ns);
        const auto early = static_cast<long double>(std::max<std::int64_t>(flow.period_ns - deadline_ns, 0));
        excess += early * static_cast<long double>(flow.cost_ns) / static_cast<long double>(flow.period_ns);
        excess += is_server(flow) ? static_cast<long double>(flow.segment_ns - 1) : 0;
    }
    long double horizon = static_cast<long double>(longest_deadline_ns);
    if (slack > 0) {
        horizon = std::max(horizon, excess / (1 - utilisation) + 1);
    }
    if (common_period_ns != 0) {
        const long double repeat =
            static_cast<long double>(common_period_ns) + static_cast<long double>(longest_deadline_ns);
        horizon = slack > 0 ? std::min(horizon, repeat) : repeat;
    } else if (slack == 0) {
        return "the device would be wholly used and the periods have no common multiple that can be checked; leave it "
               "some "
               "time or choose periods that divide each other";
    }
    std::size_t checks = 0;
    std::vector<std::int64_t> next_ns;
    for (const FlowRequest& flow : flows) {
        next_ns.push_back(deadline_of(flow));
    }
    // The demand grows only where a deadline lies: those times are enough.
    for (;;) {
        const auto soonest = std::min_element(next_ns.begin(), next_ns.end());
        if (soonest == next_ns.end() || static_cast<long double>(*soonest) > horizon) {
            return {};
        }
        const std::int64_t t_ns = *soonest;
        if (const Wide demand = demand_at(flows, t_ns, options.other_segment_ns); demand > t_ns) {
            return text(
                "%.3f ms after all flows begin together, %.3f ms of work and blocking would be due: %.3f ms too much",
                ms(t_ns), ms(static_cast<std::int64_t>(demand)), ms(static_cast<std::int64_t>(demand) - t_ns));
        }
        for (std::size_t i = 0; i < next_ns.size(); ++i) {
            next_ns[i] += next_ns[i] == t_ns ? flows[i].period_ns : 0;
        }
        if (++checks > options.checks_max) {
            return "the flows' periods need more points in time to be checked than a test may take; choose periods "
                   "that divide "
                   "each other";
        }
    }
}

AdmissionVerdict Admission::admit(const FlowRequest& request, std::int64_t now_ns) {
    AdmissionVerdict verdict;
    if (verdict.reason = fault_of(request); !verdict.reason.empty()) {
        return verdict;
    }
    if (flows_.size() >= options_.flows_max) {
        verdict.reason =
            "this device serves " + std::to_string(flows_.size()) + " flows already, as many as it may; end one first";
        verdict.retry_after_ns = options_.retry_ns;
        return verdict;
    }
    std::vector<FlowRequest> all;
    for (const Flow& flow : flows_) {
        all.push_back(flow.request);
    }
    all.push_back(request);
    if (verdict.reason = misfit_of(all, options_); !verdict.reason.empty()) {
        verdict.retry_after_ns = retry_after(request, now_ns);
        return verdict;
    }
    flows_.push_back({++last_id_, request});
    verdict.flow = last_id_;
    return verdict;
}

std::optional<std::int64_t> Admission::retry_after(const FlowRequest& request, std::int64_t now_ns) const {
    if (!misfit_of({request}, options_).empty()) {
        return std::nullopt;
    }
    // Flows whose end is known leave in that order: the first after which the request fits is when to come back.
    std::vector<FlowRequest> left;
    std::vector<std::int64_t> ends_ns;
    for (const Flow& flow : flows_) {
        left.push_back(flow.request);
        if (flow.request.ends_at_ns > 0) {
            ends_ns.push_back(flow.request.ends_at_ns);
        }
    }
    std::sort(ends_ns.begin(), ends_ns.end());
    for (const std::int64_t end_ns : ends_ns) {
        std::erase_if(left, [&](const FlowRequest& flow) { return flow.ends_at_ns > 0 && flow.ends_at_ns <= end_ns; });
        left.push_back(request);
        if (misfit_of(left, options_).empty()) {
            return std::max<std::int64_t>(end_ns - now_ns, 0);
        }
        left.pop_back();
    }
    return options_.retry_ns;
}

void Admission::release(FlowId flow) noexcept {
    std::erase_if(flows_, [&](const Flow& candidate) { return candidate.id == flow; });
}

double Admission::utilisation() const noexcept {
    return std::accumulate(flows_.begin(), flows_.end(), 0.0, [](double sum, const Flow& flow) {
        return sum + static_cast<double>(flow.request.cost_ns) / static_cast<double>(flow.request.period_ns);
    });
}

}  // namespace perceptd::queue

// Which flows one device can serve without ever being late: the processor-demand test of limited-preemption EDF. Owns
// the list of admitted flows. Never admits on trust: what cannot be proved is refused, with the reason and when to ask
// again.
//
// The test: the shares sum to at most 1, and for every t at which work is due,
//   sum over Hard and Soft flows with D <= t of (floor((t - D) / T) + 1) * C  +  the same of the servers
//   + max(q - 1 over flows with D > t, the longest segment of unadmitted work - 1)  <=  t.
// A server's last segment may begin with a little budget left, so each counts q - 1 once on top of its budgets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "queue/flow.hpp"

namespace perceptd::queue {

struct AdmissionOptions {
    std::size_t flows_max = 64;
    std::int64_t other_segment_ns = 0;      ///< the longest segment of jobs without a flow; 0: there are none
    std::int64_t retry_ns = 1'000'000'000;  ///< what is said when no admitted flow's end is known
    std::size_t checks_max = 1'000'000;     ///< points in time that one test may look at
};

/// The answer to a request.
struct AdmissionVerdict {
    FlowId flow = 0;     ///< 0: refused
    std::string reason;  ///< of a refusal: what does not fit and what would
    /// Of a refusal: time until it is worth asking again; none: never, the request does not fit even alone.
    std::optional<std::int64_t> retry_after_ns;
};

/// Thread-bound. Allocates: for opening a flow, not for jobs.
class Admission {
public:
    explicit Admission(AdmissionOptions options = {}) : options_(options) {}

    [[nodiscard]] AdmissionVerdict admit(const FlowRequest& request, std::int64_t now_ns);
    /// The flow ends; nothing for one that is not there.
    void release(FlowId flow) noexcept;
    /// The sum of the admitted shares, 0 to 1.
    [[nodiscard]] double utilisation() const noexcept;
    [[nodiscard]] std::size_t flow_count() const noexcept { return flows_.size(); }

private:
    struct Flow {
        FlowId id = 0;
        FlowRequest request;
    };
    [[nodiscard]] std::optional<std::int64_t> retry_after(const FlowRequest& request, std::int64_t now_ns) const;

    AdmissionOptions options_;
    std::vector<Flow> flows_;
    FlowId last_id_ = 0;
};

/// Why `flows` together cannot be served; empty: they can. The test above, on its own.
[[nodiscard]] std::string misfit_of(const std::vector<FlowRequest>& flows, const AdmissionOptions& options = {});

}  // namespace perceptd::queue

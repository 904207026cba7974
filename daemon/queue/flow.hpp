// A flow: jobs of one kind that keep coming, and what it promises and is promised. Plain values.
#pragma once

#include <cstdint>

#include "queue/job.hpp"

namespace perceptd::queue {

/// Hard and Soft: a job at most every period_ns, done deadline_ns after it is ready, at most cost_ns on the device.
/// BestEffort: cost_ns of every period_ns is its share; deadline_ns is the period and not looked at.
struct FlowRequest {
    JobClass job_class = JobClass::Soft;
    std::int64_t period_ns = 0;
    std::int64_t deadline_ns = 0;
    std::int64_t cost_ns = 0;
    std::int64_t segment_ns = 0;  ///< the longest stretch in which its jobs cannot be interrupted; at most cost_ns but
                                  ///< for BestEffort
    std::int64_t ends_at_ns = 0;  ///< when it gives its place up again, CLOCK_MONOTONIC; 0: nobody knows
};

}  // namespace perceptd::queue

// One device of a queue with its scheduler and how it is doing. Owns both.
#pragma once

#include <cstdint>
#include <memory>

#include "queue/device.hpp"
#include "queue/scheduler.hpp"

namespace perceptd::queue {

/// Thread-bound to its queue.
struct Lane {
    std::unique_ptr<Device> device;
    Scheduler scheduler;
    std::uint32_t held = 0;
    std::int64_t progress_at_ns = 0;  // last sign of a device that holds jobs
    bool is_full = false;             // it refused one; again after its next event
    bool is_lost = false;
};

}  // namespace perceptd::queue

#include "sensor/source.hpp"

#include "base/event_fd.hpp"

namespace perceptd::sensor {

Status SampleQueue::push(const Sample& sample) noexcept {
    if (!ring_.push(sample)) {
        return Status::Full;
    }
    signal_event(wake_fd_);
    return Status::Ok;
}

void StreamCounters::reset() noexcept {
    for (auto* const counter :
         {&delivered_count, &dropped_no_slot_count, &dropped_queue_full_count, &gap_count, &invalid_count}) {
        counter->store(0, std::memory_order_relaxed);
    }
    last_at_ns.store(0, std::memory_order_relaxed);
    ended_early.store(false, std::memory_order_relaxed);
}

const char* word_of(Kind kind) noexcept {
    switch (kind) {
        case Kind::Camera: return "camera";
        case Kind::Microphone: return "microphone";
        case Kind::Imu: return "imu";
    }
    return "unknown";
}

}  // namespace perceptd::sensor

#include "sensor/source.hpp"

#include <unistd.h>

namespace perceptd::sensor {

Status SampleQueue::push(const Sample& sample) noexcept {
    if (!ring_.push(sample)) {
        return Status::Full;
    }
    // A saturated counter (EAGAIN) is still readable, so the consumer wakes either way.
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
    return Status::Ok;
}

}  // namespace perceptd::sensor

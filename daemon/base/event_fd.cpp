#include "base/event_fd.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/error.hpp"

namespace perceptd {

UniqueFd make_event() {
    UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd) {
        throw_errno("eventfd");
    }
    return fd;
}

void signal_event(int event_fd) noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(event_fd, &one, sizeof(one)));
}

void clear_event(int event_fd) noexcept {
    std::uint64_t count = 0;
    static_cast<void>(!::read(event_fd, &count, sizeof(count)));
}

}  // namespace perceptd

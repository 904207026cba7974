// An eventfd as a wake-up between threads: signalled any number of times, it is readable until it is cleared.
// Owns nothing: descriptors are the caller's.
// Never blocks.
#pragma once

#include "base/unique_fd.hpp"

namespace perceptd {

/// A new, silent event. Throws std::system_error.
[[nodiscard]] UniqueFd make_event();
/// Makes it readable. Any thread; real-time safe. A full counter is readable as well, so that nothing is lost.
void signal_event(int event_fd) noexcept;
/// Makes it unreadable again. Any thread; real-time safe.
void clear_event(int event_fd) noexcept;

}  // namespace perceptd

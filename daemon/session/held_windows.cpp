#include "session/held_windows.hpp"

#include <algorithm>
#include <limits>

#include "base/contract.hpp"

namespace perceptd::session {
namespace {

arena::Lease share_of(const BlockOut& block, bool allowed) noexcept {
    return allowed && block.lease ? block.lease.share() : arena::Lease();
}

}  // namespace

void HeldWindows::add(const WindowOut& window, SensorSet sensors) noexcept {
    PERCEPTD_ASSERT(!is_full());
    const bool camera = sensors.has(sensor::Kind::Camera);
    const bool microphone = sensors.has(sensor::Kind::Microphone);
    Window& held = windows_.emplace_back();
    held.id = window.id;
    held.t1_ns = window.t1_ns;
    held.leases = {share_of(window.frame, camera), share_of(window.patches, camera), share_of(window.mel, microphone),
                   share_of(window.motion, sensors.has(sensor::Kind::Imu))};
    for (std::size_t i = 0; i < window.sound_count; ++i) {
        held.sounds[i] = share_of(window.sounds[i].block, microphone);
    }
}

bool HeldWindows::release(std::uint64_t window_id) noexcept {
    const auto found = std::find_if(windows_.begin(), windows_.end(),
                                    [window_id](const Window& held) { return held.id == window_id; });
    if (found == windows_.end()) {
        return false;
    }
    windows_.erase(found);
    return true;
}

bool HeldWindows::release_oldest() noexcept {
    if (windows_.empty()) {
        return false;
    }
    windows_.erase(windows_.begin());
    return true;
}

std::int64_t HeldWindows::oldest_ns() const noexcept {
    return windows_.empty() ? std::numeric_limits<std::int64_t>::max() : windows_.front().t1_ns;
}

}  // namespace perceptd::session

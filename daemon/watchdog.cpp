#include "watchdog.hpp"

#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace perceptd {
namespace {

constexpr std::int64_t kLooksPerPeriod = 4;  // one late answer does no harm

}  // namespace

Watchdog::Watchdog(EventLoop& loop, std::int64_t period_ns, Signs signs)
    : signs_(std::move(signs)), pause_ns_(period_ns / kLooksPerPeriod) {
    timer_ = loop.add_timer([this] {
        timer_->arm_at(monotonic_ns() + pause_ns_);
        look();
    });
    timer_->arm_at(monotonic_ns() + pause_ns_);
}

void Watchdog::look() {
    const bool is_sensing = signs_.is_sensing();
    const std::uint64_t heartbeat_count = signs_.heartbeat_count();
    const bool has_moved = !is_sensing || !was_sensing_ || heartbeat_count != seen_heartbeat_count_;
    was_sensing_ = is_sensing;
    seen_heartbeat_count_ = heartbeat_count;
    if (!has_moved) {
        log::error("daemon", "the pipeline thread stands still; systemd restarts the daemon if it stays so");
        return;
    }
    if (++unanswered_count_ > kLooksPerPeriod / 2) {
        log::warning("daemon", "the bus does not answer; systemd restarts the daemon if it stays so");
    }
    signs_.ask_bus([this, alive = std::weak_ptr<char>(alive_)] {
        if (!alive.expired()) {
            unanswered_count_ = 0;
            signs_.feed();
        }
    });
}

}  // namespace perceptd

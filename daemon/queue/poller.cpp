#include "queue/poller.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/event_fd.hpp"

namespace perceptd::queue {
namespace {

constexpr std::uint64_t kTimerToken = UINT64_MAX;
constexpr std::uint64_t kEventToken = UINT64_MAX - 1;

}  // namespace

Poller::Poller()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      event_(make_event()) {
    if (!epoll_ || !timer_) {
        throw_errno("epoll_create1, timerfd_create");
    }
    if (watch(timer_.borrow(), kTimerToken) != Status::Ok || watch(event_.borrow(), kEventToken) != Status::Ok) {
        throw_errno("epoll_ctl");
    }
}

Status Poller::watch(int watched_fd, std::uint64_t token) noexcept {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = token;
    return ::epoll_ctl(epoll_.borrow(), EPOLL_CTL_ADD, watched_fd, &event) == 0 ? Status::Ok : Status::Invalid;
}

void Poller::forget(int watched_fd) noexcept {
    ::epoll_ctl(epoll_.borrow(), EPOLL_CTL_DEL, watched_fd, nullptr);
}

void Poller::arm_at(std::int64_t at_ns) noexcept {
    if (at_ns == armed_ns_) {
        return;
    }
    armed_ns_ = at_ns;
    itimerspec date{};
    if (at_ns != INT64_MAX) {
        // 0 would disarm it: what is due already is due at 1 ns.
        const std::int64_t due_ns = std::max<std::int64_t>(at_ns, 1);
        date.it_value = {due_ns / kNsPerSecond, due_ns % kNsPerSecond};
    }
    ::timerfd_settime(timer_.borrow(), TFD_TIMER_ABSTIME, &date, nullptr);
}

void Poller::wake() noexcept {
    // One write until somebody looks, however many come.
    if (!is_woken_.exchange(true, std::memory_order_seq_cst)) {
        signal_event(event_.borrow());
    }
}

std::span<const std::uint64_t> Poller::take() noexcept {
    std::array<epoll_event, kReadyMax> events;
    const int count = ::epoll_wait(epoll_.borrow(), events.data(), static_cast<int>(events.size()), 0);
    std::size_t tokens = 0;
    for (int i = 0; i < count; ++i) {
        const std::uint64_t token = events[static_cast<std::size_t>(i)].data.u64;
        if (token == kEventToken) {
            clear_event(event_.borrow());
            // Cleared before the caller looks: who comes later writes again.
            is_woken_.store(false, std::memory_order_seq_cst);
        } else if (token == kTimerToken) {
            std::uint64_t expirations = 0;
            static_cast<void>(!::read(timer_.borrow(), &expirations, sizeof(expirations)));
            armed_ns_ = INT64_MAX;
        } else {
            ready_[tokens++] = token;
        }
    }
    return {ready_.data(), tokens};
}

}  // namespace perceptd::queue

#include "fence/timeline.hpp"

#include <unistd.h>

#include "base/contract.hpp"
#include "base/error.hpp"
#include "base/event_fd.hpp"

namespace perceptd::fence {
namespace {

constexpr std::uint64_t kFree = 0;
constexpr std::uint64_t kTaken = UINT64_MAX;

FenceState state_in(std::uint64_t progress, std::uint64_t point) noexcept {
    if (point <= progress / 2) {
        return FenceState::Signalled;
    }
    return progress % 2 != 0 ? FenceState::DeviceLost : FenceState::Pending;
}

void add(int event_fd, std::uint64_t count) noexcept {
    static_cast<void>(!::write(event_fd, &count, sizeof(count)));
}

}  // namespace

CounterTimeline::CounterTimeline() : progress_fd_(make_event()) {}

CounterTimeline::~CounterTimeline() {
    // Nobody can signal any more: who still waits must not wait for ever.
    fail();
}

Status CounterTimeline::signal(std::uint64_t point) noexcept {
    PERCEPTD_ASSERT(point <= kPointMax);
    std::uint64_t progress = progress_.load(std::memory_order_relaxed);
    do {
        if (progress % 2 != 0) {
            return point <= progress / 2 ? Status::Late : Status::Ended;
        }
        if (point <= progress / 2) {
            return Status::Late;
        }
        // Sequentially consistent, as is export_point(): either it sees the point, or end_finished() sees the fence.
    } while (!progress_.compare_exchange_weak(progress, point * 2, std::memory_order_seq_cst));
    end_finished();
    return Status::Ok;
}

void CounterTimeline::fail() noexcept {
    if (progress_.fetch_or(1, std::memory_order_seq_cst) % 2 == 0) {
        end_finished();
    }
}

std::uint64_t CounterTimeline::finished_point() const noexcept {
    return progress_.load(std::memory_order_acquire) / 2;
}

FenceState CounterTimeline::state(std::uint64_t point) const noexcept {
    return state_in(progress_.load(std::memory_order_acquire), point);
}

Fence CounterTimeline::export_point(std::uint64_t point) {
    PERCEPTD_ASSERT(point <= kPointMax);
    UniqueFd event = make_event();
    Fence fence(event.duplicate(), Fence::Kind::EventFd);
    if (point == 0) {  // finished since the beginning, and not to be taken for a free place
        add(event.borrow(), kEventSignalled);
        return fence;
    }
    for (Exported& exported : exported_) {
        std::uint64_t expected = kFree;
        if (!exported.waiting_for.compare_exchange_strong(expected, kTaken, std::memory_order_acquire)) {
            continue;
        }
        exported.event = std::move(event);  // closes the one that ended here before
        exported.waiting_for.store(point, std::memory_order_seq_cst);
        end_if_finished(exported);
        return fence;
    }
    Error error(ErrorCode::Busy, "too many unfinished fences of one queue are exported; wait for some first");
    error.limit = kFencesMax;
    error.used = kFencesMax;
    throw error;
}

void CounterTimeline::end_finished() noexcept {
    for (Exported& exported : exported_) {
        end_if_finished(exported);
    }
    add(progress_fd_.borrow(), 1);
}

void CounterTimeline::end_if_finished(Exported& exported) noexcept {
    std::uint64_t point = exported.waiting_for.load(std::memory_order_seq_cst);
    if (point == kFree || point == kTaken) {
        return;
    }
    const FenceState state = state_in(progress_.load(std::memory_order_seq_cst), point);
    if (state == FenceState::Pending ||
        !exported.waiting_for.compare_exchange_strong(point, kTaken, std::memory_order_acquire)) {
        return;
    }
    add(exported.event.borrow(), state == FenceState::Signalled ? kEventSignalled : kEventLost);
    exported.waiting_for.store(kFree, std::memory_order_release);
}

}  // namespace perceptd::fence

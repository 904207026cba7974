// The ordered completions of one queue: points that finish in the order of their numbers. Owns the count of finished
// points and whatever its waiters sleep on.
// Never goes back, never forgets an error: once the device is lost, every point that has not finished is lost.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "fence/fence.hpp"

namespace perceptd::fence {

/// What a queue's owner and its waiters see, whether the kernel counts (drm_syncobj) or the daemon does.
/// Points count from 1; a point is finished when it or a later one was signalled.
class Timeline {
public:
    virtual ~Timeline() = default;

    /// Finishes `point` and all before it. One thread. Ok; Late: it was finished already; Ended: the device is lost,
    /// the point stays lost. Real-time: no allocation, no lock; one write per fence that ends.
    virtual Status signal(std::uint64_t point) noexcept = 0;
    /// The device is lost: what has not finished never will. Any thread; idempotent. Real-time as signal().
    virtual void fail() noexcept = 0;

    /// The newest finished point; 0 = none yet. Any thread, real-time safe.
    [[nodiscard]] virtual std::uint64_t finished_point() const noexcept = 0;
    /// Pending, Signalled or DeviceLost. Any thread, real-time safe.
    [[nodiscard]] virtual FenceState state(std::uint64_t point) const noexcept = 0;
    /// One point as a fence of its own: pollable, and it may leave the process. Any thread but a real-time one (system
    /// calls). Throws Error(Busy) when too many unfinished fences are out, std::system_error.
    [[nodiscard]] virtual Fence export_point(std::uint64_t point) = 0;
    /// Readable after each signal() and fail() until it is read; for an event loop that looks at every point. Borrowed.
    [[nodiscard]] virtual int progress_fd() const noexcept = 0;
};

/// The daemon counts, eventfds wake: for queues without a kernel driver.
class CounterTimeline final : public Timeline {
public:
    static constexpr std::size_t kFencesMax = 64;  ///< unfinished and exported at one time
    static constexpr std::uint64_t kPointMax = (std::uint64_t{1} << 62) - 1;

    /// Throws std::system_error.
    CounterTimeline();
    ~CounterTimeline() override;
    CounterTimeline(const CounterTimeline&) = delete;
    CounterTimeline& operator=(const CounterTimeline&) = delete;

    Status signal(std::uint64_t point) noexcept override;
    void fail() noexcept override;
    [[nodiscard]] std::uint64_t finished_point() const noexcept override;
    [[nodiscard]] FenceState state(std::uint64_t point) const noexcept override;
    [[nodiscard]] Fence export_point(std::uint64_t point) override;
    [[nodiscard]] int progress_fd() const noexcept override { return progress_fd_.borrow(); }

private:
    /// `waiting_for`: kFree, kTaken (its taker alone touches `event`), or the point that ends it.
    struct Exported {
        std::atomic<std::uint64_t> waiting_for{0};
        UniqueFd event;
    };

    void end_finished() noexcept;
    void end_if_finished(Exported& exported) noexcept;

    std::atomic<std::uint64_t> progress_{0};  ///< finished point * 2 + 1 when the device is lost: one word, one truth
    std::array<Exported, kFencesMax> exported_;
    UniqueFd progress_fd_;
};

}  // namespace perceptd::fence

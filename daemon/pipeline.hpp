// The pipeline thread: samples in, windows with their token blocks out. It joins sensor, sync and tokens.
// Owns the sample queues, the clock models, the waiting tokens and the ring of closed windows; borrows arenas and
// sources. Never allocates, locks or logs after construction; never waits for a client (a recording waits for free
// slots).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "arena/arena.hpp"
#include "base/rt_thread.hpp"
#include "base/spsc_ring.hpp"
#include "base/unique_fd.hpp"
#include "pipeline_counters.hpp"
#include "pipeline_options.hpp"
#include "sensor/source.hpp"
#include "sync/aligner.hpp"
#include "sync/clock_model.hpp"
#include "window_record.hpp"
#include "window_tokens.hpp"

namespace perceptd {

/// Threads: constructor, destructor and pop() on the main thread.
class Pipeline {
public:
    static constexpr std::size_t kWindowRing = 64;

    /// Starts the sources and the thread. Each kind is offered by one source at most; recordings and live sources do
    /// not mix. Throws std::system_error and what Source::start() throws.
    Pipeline(std::vector<sensor::Source*> sources, const PipelineOptions& options);
    /// Stops them; every slot that is still inside is released.
    ~Pipeline();
    Pipeline(const Pipeline&) = delete;
    Pipeline& operator=(const Pipeline&) = delete;

    /// The next closed window; its slots are then the caller's to adopt.
    [[nodiscard]] bool pop(WindowRecord& record) noexcept;
    /// Live: the longest wait after a window's end, from the next wake-up on.
    void set_deadline(std::int64_t deadline_ns) noexcept { deadline_ns_.store(deadline_ns, std::memory_order_relaxed); }
    /// Readable while windows wait.
    [[nodiscard]] int ready_fd() const noexcept { return ready_fd_.borrow(); }
    [[nodiscard]] bool is_live() const noexcept { return live_; }
    [[nodiscard]] const PipelineCounters& counters() const noexcept { return counters_; }
    [[nodiscard]] const sync::ClockModel& clock(sensor::Kind kind) const noexcept {
        return clocks_[sensor::index_of(kind)];
    }

private:
    void start_sources();
    void halt() noexcept;
    void run(const std::atomic<bool>& stop) noexcept;
    void wait(std::int64_t now_ns) noexcept;
    [[nodiscard]] bool has_room() noexcept;
    [[nodiscard]] bool has_samples() const noexcept;
    void take_samples() noexcept;
    void take(const sensor::Sample& sample) noexcept;
    void take_frame(const sensor::Sample& sample) noexcept;
    void take_sound(const sensor::Sample& sample) noexcept;
    void take_motion(const sensor::Sample& sample) noexcept;
    void close_windows() noexcept;
    [[nodiscard]] std::int64_t hub_time(const sensor::Sample& sample) noexcept;
    void release_all() noexcept;

    std::vector<sensor::Source*> sources_;
    sensor::Offer offer_;  ///< of all sources together
    PipelineOptions options_;
    bool live_;
    std::atomic<std::int64_t> deadline_ns_;
    UniqueFd wake_fd_;
    UniqueFd ready_fd_;
    std::vector<std::unique_ptr<sensor::SampleQueue>> queues_;  ///< one per source
    std::array<sync::ClockModel, sensor::kKindCount> clocks_;
    std::array<sync::MonotonicStamp, sensor::kKindCount> stamps_;
    sync::Aligner aligner_;
    PipelineCounters counters_;
    WindowTokens tokens_;
    bool held_is_set_ = false;
    sensor::Sample held_;  // a frame that the aligner had no room for
    std::int64_t held_hub_ns_ = 0;
    SpscRing<WindowRecord, kWindowRing> windows_;
    std::unique_ptr<RtThread> thread_;
};

}  // namespace perceptd

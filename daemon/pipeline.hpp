// The pipeline thread: samples in, windows with their token blocks out. It joins sensor, sync and tokens.
// Owns the sample queues, the clock models, the token stages and the ring of closed windows; borrows arenas and
// sources. Never allocates, locks or logs after construction; never waits for a client (a recording waits for free
// slots).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "arena/arena.hpp"
#include "base/latency_histogram.hpp"
#include "base/rt_thread.hpp"
#include "base/spsc_ring.hpp"
#include "base/unique_fd.hpp"
#include "sensor/source.hpp"
#include "sound_shelf.hpp"
#include "sync/aligner.hpp"
#include "sync/clock_model.hpp"
#include "tokens/mel.hpp"
#include "tokens/motion.hpp"
#include "tokens/patches.hpp"
#include "window_record.hpp"

namespace perceptd {

struct PipelineOptions {
    StreamArenas arenas;
    bool imu_on = false;
    tokens::MelProfile mel_profile = tokens::MelProfile::Kaldi;
    tokens::PatchGateOptions patch_gate;
    std::int64_t deadline_ns = 20 * kNsPerMs;
    std::int64_t longest_window_ns = 200 * kNsPerMs;
    std::uint64_t first_window_id = 0;
    int fifo_priority = 0;
};

/// What the thread has done; any thread reads it.
struct PipelineCounters {
    std::atomic<std::uint64_t> windows_count{0};
    std::atomic<std::uint64_t> windows_lost_count{0};  ///< nobody took them from the ring in time
    std::atomic<std::uint64_t> blocks_lost_count{0};   ///< no free token slot
    std::atomic<std::uint64_t> mel_slices_lost_count{0};
    std::atomic<std::uint64_t> imu_rows_lost_count{0};
    std::atomic<std::uint64_t> sound_blocks_lost_count{0};  ///< let go before their window closed: the arena is small
    /// Camera bytes copied in user space after the slot was filled: whoever adds such a copy adds to this.
    std::atomic<std::uint64_t> camera_copied_bytes{0};
    std::atomic<std::uint64_t> gate_reference_bytes{0};
    std::atomic<std::int64_t> window_to_tokens_max_ns{0};
    LatencyHistogram window_to_tokens;
};

/// Threads: constructor, destructor and pop() on the main thread.
class Pipeline {
public:
    static constexpr std::size_t kWindowRing = 64;
    static constexpr std::size_t kPendingSlices = 1024;

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
    struct SoundLevel {
        std::int64_t at_ns = 0;
        tokens::AudioLevel level;
        std::uint32_t sample_count = 0;
    };

    void start_sources();
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
    void fill_patches(const sync::WindowPlan& plan, WindowRecord& record) noexcept;
    void fill_mel(const sync::WindowPlan& plan, WindowRecord& record) noexcept;
    void fill_motion(const sync::WindowPlan& plan, WindowRecord& record) noexcept;
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
    std::optional<tokens::PatchGate> gate_;
    tokens::MelStream mel_;
    tokens::MotionExtractor motion_;
    bool held_is_set_ = false;
    sensor::Sample held_;  // a frame that the aligner had no room for
    std::int64_t held_hub_ns_ = 0;
    std::uint64_t next_mono_sample_ = 0;
    SoundShelf sounds_;
    std::vector<percept_patch> patch_list_;
    std::vector<percept_mel_slice> slices_;  // waiting, in time order; sized once
    std::size_t slice_count_ = 0;
    std::vector<SoundLevel> levels_;
    std::size_t level_count_ = 0;
    std::vector<percept_imu_row> rows_;  // waiting; rows_[0] may be the previous window's last row
    std::size_t row_count_ = 0;
    bool has_previous_row_ = false;
    std::vector<percept_imu_row> window_rows_;
    std::vector<percept_motion_feature> features_;
    SpscRing<WindowRecord, kWindowRing> windows_;
    PipelineCounters counters_;
    std::unique_ptr<RtThread> thread_;
};

}  // namespace perceptd

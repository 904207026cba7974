// Decides where windows begin and end (algorithms.md section 2): frames open them, ticks stand in for frames.
// Owns the frames that wait for their window (their lease counts included) and the watermarks.
// Never sees slices or rows: their owner asks the closed plan, so that each goes to exactly one window.
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "sensor/sample.hpp"
#include "sync/window.hpp"

namespace perceptd::sync {

inline constexpr std::int64_t kMelHalf_ns = 12'500'000;  ///< first sample of a slice to its centre, and on to its end

struct AlignerOptions {
    std::array<bool, sensor::kKindCount> present{true, true, true};  ///< by sensor::index_of
    bool live = true;  ///< false: a recording; only watermarks and ends count, never the clock
    std::int64_t nominal_period_ns = 33'333'333;
    std::int64_t longest_window_ns = 200 * kNsPerMs;
    std::int64_t deadline_ns = 20 * kNsPerMs;  ///< live: the longest wait after a window's end
    /// Live: known delay from an event to its arrival here (exposure, readout, block length); the largest one
    /// of the present kinds is added to deadline_ns.
    std::array<std::int64_t, sensor::kKindCount> delivery_ns{};
};

struct AlignerCounters {
    std::uint64_t frames = 0;            ///< taken
    std::uint64_t duplicate_frames = 0;  ///< same stamp as the last one
    std::uint64_t backward_frames = 0;   ///< stamp before the last frame
    std::uint64_t late_frames = 0;       ///< stamp before the open window
    std::uint64_t refused_frames = 0;    ///< queue full, out of range or after the end
    std::array<std::uint64_t, sensor::kKindCount> late_items{};
    std::uint64_t windows = 0;
    std::uint64_t ticks = 0;  ///< windows opened by a tick
    std::uint64_t deadline_closes = 0;
};

/// Thread-bound. Real-time: no allocation, no lock, no throw; every call is O(1) except begin/end (O(kinds)).
class Aligner {
public:
    static constexpr std::size_t kFrameQueue = 64;

    explicit Aligner(const AlignerOptions& options) noexcept;

    /// The earliest event of `kind`, once, before its first advance() (Camera: implied by the first frame).
    /// Without it the first advance() counts as the begin.
    Status begin(sensor::Kind kind, std::int64_t first_ns) noexcept;
    /// Takes a frame. Unless Ok the caller keeps it and releases its lease: Duplicate, Late (counted), Invalid, Ended;
    /// Full: poll() first, then offer it again.
    Status on_frame(std::int64_t hub_ns, const sensor::Sample& frame) noexcept;
    /// Promises that no event of `kind` before `watermark_ns` will come. Never moves back.
    Status advance(sensor::Kind kind, std::int64_t watermark_ns) noexcept;
    /// The stream is over.
    void end(sensor::Kind kind) noexcept;
    /// A clock map opened `epoch` at hub time `at_ns`: the window that holds it is cut there with kEpoch.
    Status on_epoch(std::uint32_t epoch, std::int64_t at_ns) noexcept;

    /// Ok: `plan` is the next window in order. Again: nothing is closed yet. Ended: the last one was handed out.
    Status poll(std::int64_t now_ns, WindowPlan& plan) noexcept;
    /// Changes the live wait after a window's end; holds for the open window too.
    void set_deadline(std::int64_t deadline_ns) noexcept { options_.deadline_ns = deadline_ns; }
    /// Live: when poll() must be called next even if nothing arrives; INT64_MAX = no need.
    [[nodiscard]] std::int64_t next_deadline_ns() const noexcept;

    /// Whether a slice or row at `hub_ns` can still be owned: Late (counted) when its window has closed.
    Status admit(sensor::Kind kind, std::int64_t hub_ns) noexcept;
    /// Gives back a frame that still waits, so that its lease can be released. For shutdown.
    Status drain_frame(sensor::Sample& frame) noexcept;

    [[nodiscard]] const AlignerCounters& counters() const noexcept { return counters_; }

private:
    struct Stream {
        bool present = false;
        bool begun = false;
        bool ended = false;
        std::int64_t first_ns = INT64_MAX;
        std::int64_t watermark_ns = INT64_MIN;
    };
    struct Waiting {
        std::int64_t hub_ns = 0;
        sensor::Sample frame;
    };
    struct Boundary {
        std::int64_t t1_ns = 0;
        bool known = false;
        bool tick = false;   ///< the next window is opened by a tick
        bool epoch = false;  ///< cut by an epoch
        bool last = false;
    };

    [[nodiscard]] Stream& stream(sensor::Kind kind) noexcept { return streams_[sensor::index_of(kind)]; }
    [[nodiscard]] const Stream& stream(sensor::Kind kind) const noexcept { return streams_[sensor::index_of(kind)]; }
    [[nodiscard]] bool all_ended() const noexcept;
    [[nodiscard]] std::int64_t horizon_ns() const noexcept;
    [[nodiscard]] std::int64_t earliest_ns() const noexcept;
    [[nodiscard]] std::int64_t wait_until_ns(std::int64_t end_ns) const noexcept;
    [[nodiscard]] bool is_due(std::int64_t end_ns, std::int64_t now_ns) const noexcept;
    [[nodiscard]] Boundary find_boundary(std::int64_t now_ns) const noexcept;
    [[nodiscard]] std::uint32_t missing_flags(std::int64_t t1_ns) const noexcept;
    bool try_open_first(std::int64_t now_ns) noexcept;
    void open(std::int64_t t0_ns, bool tick) noexcept;

    AlignerOptions options_;
    std::array<Stream, sensor::kKindCount> streams_{};
    std::array<Waiting, kFrameQueue> queue_{};
    std::size_t queue_head_ = 0;
    std::size_t queue_count_ = 0;
    std::int64_t longest_delivery_ns_ = 0;
    std::int64_t last_frame_ns_ = INT64_MIN;

    WindowPlan open_;
    bool is_open_ = false;
    bool finished_ = false;
    std::uint64_t next_id_ = 0;
    std::uint32_t epoch_ = 0;
    bool epoch_pending_ = false;
    std::uint32_t pending_epoch_ = 0;
    std::int64_t epoch_at_ns_ = 0;
    AlignerCounters counters_;
};

}  // namespace perceptd::sync

// The seam between sensors and the rest: a source fills arena slots and pushes Samples. Real devices, the synthetic
// scene and provider processes look the same from here on.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "arena/arena.hpp"
#include "base/spsc_ring.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "sensor/sample.hpp"

namespace perceptd::sensor {

/// Samples from one capture thread to the pipeline thread, with an eventfd that wakes it.
class SampleQueue {
public:
    static constexpr std::size_t kCapacity = 4096;

    /// `wake_fd` (an eventfd, borrowed) must outlive the queue.
    explicit SampleQueue(int wake_fd) noexcept : wake_fd_(wake_fd) {}

    /// Full: the caller still owns the sample's slot and counts the drop. Producer's thread.
    [[nodiscard]] Status push(const Sample& sample) noexcept;
    [[nodiscard]] bool pop(Sample& sample) noexcept { return ring_.pop(sample); }
    [[nodiscard]] std::size_t size() const noexcept { return ring_.size(); }

private:
    SpscRing<Sample, kCapacity> ring_;
    int wake_fd_;
};

/// What one stream has done since it was switched on; read by any thread while the source runs.
struct StreamCounters {
    std::atomic<std::uint64_t> delivered_count{0};
    std::atomic<std::uint64_t> dropped_no_slot_count{0};
    std::atomic<std::uint64_t> dropped_queue_full_count{0};
    std::atomic<std::uint64_t> gap_count{0};
    std::atomic<std::uint64_t> invalid_count{0};
    std::atomic<std::int64_t> last_at_ns{0};  ///< hub time of the last sample; 0 = none yet
    std::atomic<bool> ended_early{false};     ///< a recording is damaged: its end came before its time

    /// Before a start.
    void reset() noexcept;
};

/// What a source offers. A missing kind is an empty optional: a device without a microphone works.
struct Offer {
    std::string origin;   ///< "synthetic", "replay: walk.mp4": shown to people
    bool is_live = true;  ///< false: a recording that waits for its readers and must not lose anything
    std::array<StampKind, kKindCount> stamp_kind{};
    std::optional<CameraFormat> camera;
    std::optional<AudioFormat> audio;
    std::optional<ImuFormat> imu;
};

/// "camera", "microphone" or "imu": the word for a kind, on the bus and for people.
const char* word_of(Kind kind) noexcept;

/// Where a started source writes. Null = that kind is off.
struct Sink {
    arena::Arena* camera_arena = nullptr;
    arena::Arena* audio_arena = nullptr;
    bool imu_on = false;
    SampleQueue* queue = nullptr;
};

/// Threads: every function on the main thread; samples come from the source's own capture thread.
class Source {
public:
    virtual ~Source() = default;
    [[nodiscard]] virtual const Offer& offer() const noexcept = 0;
    /// Begins capture of the kinds present in `sink`, from the start of a recording. Throws Error(SensorUnavailable).
    virtual void start(const Sink& sink) = 0;
    /// Ends capture and joins the capture thread; slots it held are released. Idempotent.
    virtual void stop() noexcept = 0;
    [[nodiscard]] virtual const StreamCounters& counters(Kind kind) const noexcept = 0;
    /// Slots of `kind`'s arena that the source keeps for writing: not free, but nobody's to take back. Any thread.
    [[nodiscard]] virtual std::uint32_t lent_slot_count(Kind) const noexcept { return 0; }
};

}  // namespace perceptd::sensor

// A source without hardware: films, hears and feels the synthetic Scene, each stream stamped by its own wrong clock.
// Owns the scene, its capture thread and the counters.
// Never owns arenas or the queue: they come with start() and must outlive stop().
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/rt_thread.hpp"
#include "base/unique_fd.hpp"
#include "sensor/scene.hpp"
#include "sensor/source.hpp"

namespace perceptd::sensor {

enum class Pace : std::uint8_t {
    Realtime,  ///< each sample when its instant has passed; loses samples when no slot is free, as a device does
    Fast,      ///< as fast as slots and the queue allow; waits instead of losing; hub stamps run ahead of the clock
};

/// How one sensor's clock errs. sensor_ns = origin_ns + truth * (1 + error_ppm / 1e6).
struct ClockModel {
    double error_ppm = 0;                 ///< positive: the sensor's clock runs fast; |error| <= 10 000
    std::int64_t jitter_ns = 0;           ///< of the hub stamp: standard deviation (Latched) or mean delay (OneWay)
    StampKind kind = StampKind::Latched;  ///< Identity demands error_ppm = 0 and jitter_ns = 0
    std::int64_t origin_ns = 0;           ///< the sensor's clock when the scene begins
};

struct SyntheticCamera {
    std::uint32_t width_px = 848;
    std::uint32_t height_px = 480;
    double rate_hz = 30;
    ClockModel clock{.origin_ns = 5'000'000'000};
};
struct SyntheticMicrophone {
    std::uint32_t rate_hz = 48'000;
    std::uint32_t channel_count = 2;
    std::uint32_t block_ms = 10;
    ClockModel clock{.origin_ns = 7'000'000'000};
};
struct SyntheticImu {
    double rate_hz = 200;
    ClockModel clock{.origin_ns = 11'000'000'000};
};

struct SyntheticOptions {
    std::optional<SyntheticCamera> camera = SyntheticCamera{};  ///< empty: the device has none
    std::optional<SyntheticMicrophone> microphone = SyntheticMicrophone{};
    std::optional<SyntheticImu> imu = SyntheticImu{};
    std::uint64_t seed = 1;
    bool is_walking = true;
    Pace pace = Pace::Realtime;
    std::int64_t duration_ns = 0;   ///< of truth time; only whole blocks are made; 0 = endless
    std::int64_t hub_start_ns = 0;  ///< Fast only: hub time when the scene begins; 0 = the moment of start()
    int fifo_priority = 0;          ///< of the capture thread, as in RtThreadOptions
    int cpu_index = -1;
};

/// Bytes of one NV12 frame: the camera arena's least slot size.
[[nodiscard]] std::size_t camera_slot_bytes(const CameraFormat& format) noexcept;
/// Bytes of one percept_audio_block with both signals: the audio arena's least slot size.
[[nodiscard]] std::size_t audio_slot_bytes(const AudioFormat& format) noexcept;

/// Deterministic by options, apart from when samples arrive (and, in real time, from what had to be dropped).
/// Stamps: camera = the instant drawn; audio = the block's first frame; hub_ns = that instant plus the jitter.
/// A lost sample leaves a hole in `sequence`, and the next one carries kGap. After the last sample of a finite
/// scene one kEnd per started kind follows; stop() before that sends none.
class SyntheticSource final : public Source {
public:
    /// Paints the scene (tens of ms). Throws Error(InvalidArgument) for options that cannot be met.
    explicit SyntheticSource(const SyntheticOptions& options);
    ~SyntheticSource() override;

    [[nodiscard]] const Offer& offer() const noexcept override { return offer_; }
    void start(const Sink& sink) override;
    void stop() noexcept override;
    [[nodiscard]] const StreamCounters& counters(Kind kind) const noexcept override {
        return counters_[index_of(kind)];
    }

    [[nodiscard]] const Scene& scene() const noexcept { return scene_; }
    /// Hub time of truth time 0; valid after start().
    [[nodiscard]] std::int64_t hub_start_ns() const noexcept { return hub_start_ns_; }
    /// The true instant of a sensor stamp, in ns since the scene began: what a clock estimator should find.
    [[nodiscard]] std::int64_t truth_ns(Kind kind, std::int64_t sensor_ns) const noexcept;

private:
    /// What the capture thread knows of one stream.
    struct Stream {
        Kind kind = Kind::Camera;
        ClockModel clock;
        bool is_on = false;
        bool is_ended = false;
        bool has_gap = false;        // a sample was lost since the last delivered one
        std::uint64_t sequence = 0;  // of the next sample
        std::int64_t truth_ns = 0;   // its instant, without clock error or jitter
        std::int64_t hub_ns = 0;     // the same on the hub, jittered
        std::int64_t due_ns = 0;     // hub time from which it may be delivered
    };
    enum class Outcome : std::uint8_t { Filled, NoSlot, Failed, Stopped };

    void capture(const std::atomic<bool>& stop) noexcept;
    void plan(Stream& stream) noexcept;
    [[nodiscard]] Stream* earliest() noexcept;
    void deliver(Stream& stream, const std::atomic<bool>& stop) noexcept;
    [[nodiscard]] Outcome fill(const Stream& stream, Sample& sample, arena::Lease& lease,
                               const std::atomic<bool>& stop) noexcept;
    [[nodiscard]] std::uint32_t write_audio(const Stream& stream, std::span<std::byte> slot) const noexcept;
    [[nodiscard]] arena::Lease wait_for_slot(arena::Arena& arena, const std::atomic<bool>& stop) const noexcept;
    [[nodiscard]] bool push(const Sample& sample, bool must_wait, const std::atomic<bool>& stop) noexcept;
    [[nodiscard]] std::int64_t sensor_elapsed_ns(const Stream& stream, std::uint64_t sequence) const noexcept;

    SyntheticOptions options_;
    Scene scene_;
    Offer offer_;
    std::array<StreamCounters, kKindCount> counters_;
    std::array<Stream, kKindCount> streams_;
    Sink sink_;
    std::int64_t hub_start_ns_ = 0;
    UniqueFd stop_fd_;
    std::unique_ptr<RtThread> thread_;
};

}  // namespace perceptd::sensor

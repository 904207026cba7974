// A synthetic world with one truth clock: a walking head looks round a textured room, and every step clicks.
// Owns the panorama; what a camera, a microphone and an IMU would measure at time t is a function of (seed, t).
// Never knows sensor clocks, slots or threads; never allocates after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sensor/sample.hpp"

namespace perceptd::sensor {

inline constexpr double kGravityMps2 = 9.81;
inline constexpr std::int64_t kStepPeriodNs = 600'000'000;  ///< 1.67 Hz, a usual walking cadence
inline constexpr std::int64_t kFirstStepNs = 300'000'000;
inline constexpr std::int64_t kTonePeriodNs = 2'000'000'000;
inline constexpr std::int64_t kFirstToneNs = 1'000'000'000;
inline constexpr std::int64_t kToneNs = 120'000'000;
inline constexpr std::int64_t kLampNs = 50'000'000;  ///< the lamp's time on after each step
inline constexpr std::uint32_t kLampPx = 32;         ///< the lamp: a square at the frame's top left corner
inline constexpr std::uint8_t kLampOnLuma = 235;
inline constexpr std::uint8_t kLampOffLuma = 16;
inline constexpr std::uint32_t kMonoRateHz = 16'000;

struct SceneOptions {
    std::uint64_t seed = 1;
    std::uint32_t width_px = 848;   ///< even
    std::uint32_t height_px = 480;  ///< even
    bool is_walking = true;         ///< false: the head stands still and no step clicks; tones remain
};

/// The head at one moment. Body axes: x right, y up, z backward; yaw turns about y, positive to the left.
struct HeadPose {
    double yaw_rad = 0;
    double yaw_rate_radps = 0;
    double height_m = 0;  ///< above the mean
};

/// Where the frame's top left pixel lies in the panorama. A turn to the left makes x smaller.
struct View {
    double x_px = 0;  ///< in [0, panorama_width_px())
    double y_px = 0;
};

struct ImuTruth {
    std::array<double, 3> accel_mps2{};  ///< specific force: at rest {0, +9.81, 0}
    std::array<double, 3> gyro_radps{};
};

/// A run of samples of one sound track on the truth clock: sample i sounds at first_ns + i * period_ns.
struct SoundSpan {
    double first_ns = 0;
    double period_ns = 0;
    std::uint64_t first_index = 0;  ///< keys the noise
    std::uint32_t count = 0;
    std::uint32_t channel_count = 1;
    bool is_mono_mix = false;  ///< the mean of the left and the right ear
};

/// Threads: const functions from any thread. Real-time: all but the constructor; no allocation, lock or syscall.
/// Times are truth nanoseconds since the scene began.
class Scene {
public:
    /// Throws Error(InvalidArgument) for an odd or empty frame size.
    explicit Scene(const SceneOptions& options);

    [[nodiscard]] HeadPose head_at(std::int64_t time_ns) const noexcept;
    [[nodiscard]] View view_at(std::int64_t time_ns) const noexcept;
    [[nodiscard]] bool is_lamp_on(std::int64_t time_ns) const noexcept;
    /// Without noise.
    [[nodiscard]] ImuTruth imu_at(std::int64_t time_ns) const noexcept;
    /// With the sensor's white noise (0.02 m/s2, 0.002 rad/s per axis), keyed by the row's index.
    void measure_imu(std::int64_t time_ns, std::uint64_t row_index, Sample& row) const noexcept;
    /// Draws the NV12 frame at `time_ns`. `frame` holds at least frame_bytes(stride_bytes).
    void render_frame(std::int64_t time_ns, std::uint32_t stride_bytes, std::span<std::byte> frame) const noexcept;
    /// Writes span.count * span.channel_count interleaved int16 samples.
    void render_sound(const SoundSpan& span, std::int16_t* samples) const noexcept;

    [[nodiscard]] std::size_t frame_bytes(std::uint32_t stride_bytes) const noexcept {
        return std::size_t{stride_bytes} * options_.height_px * 3 / 2;
    }
    [[nodiscard]] std::uint32_t panorama_width_px() const noexcept { return panorama_width_px_; }
    /// Pixels per radian of yaw.
    [[nodiscard]] double focal_px() const noexcept;

private:
    void paint_panorama();
    [[nodiscard]] double sound_at(double time_ns) const noexcept;

    SceneOptions options_;
    std::uint32_t panorama_width_px_ = 0;   // one whole turn
    std::uint32_t panorama_height_px_ = 0;  // the frame plus room for the bob
    std::size_t row_bytes_ = 0;             // the turn, then its first frame again: a row never wraps while drawn
    std::vector<std::uint8_t> luma_;
    std::vector<std::uint8_t> chroma_;  // interleaved Cb, Cr at half size, same row_bytes_
};

}  // namespace perceptd::sensor

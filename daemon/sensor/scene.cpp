#include "sensor/scene.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/clock.hpp"
#include "base/contract.hpp"
#include "base/error.hpp"
#include "sensor/counter_rng.hpp"

namespace perceptd::sensor {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;
constexpr double kTurnsPerPx = 1.0 / 4.83;  // of the frame's width: a horizontal field of view of 75 degrees
constexpr double kMeanYawRateRadps = 0.12;  // drifts round the room
constexpr double kLookYawRateRadps = 0.35;  // looks left and right
constexpr std::int64_t kLookPeriodNs = 4 * kNsPerSecond;
constexpr double kBobMps2 = 2.2;   // 2 cm at the step cadence
constexpr double kSwayMps2 = 0.4;  // left-right, once per two steps
constexpr double kWallDistanceM = 3.0;
constexpr std::uint32_t kMarginPx = 16;  // rows above and below the frame that the bob may uncover
constexpr int kFractionSteps = 16;       // sub-pixel steps; weights of a 2x2 blend then sum to 256
constexpr double kClickAmplitude = 0.5;
constexpr double kClickHz = 2500.0;
constexpr double kClickDecayNs = 1.5e6;
constexpr double kClickEndNs = 15e6;  // exp(-10): below one step of int16
constexpr double kToneAmplitude = 0.25;
constexpr double kToneRampNs = 5e6;
constexpr double kRoundingNs = 0.5;  // an onset on a sample's instant belongs to that sample, not to the next
constexpr double kSoundNoise = 3.0;  // peak, int16 steps

// Streams of the counter RNG.
enum Stream : std::uint64_t { kTextureStream = 1, kAccelStream, kGyroStream, kToneStream, kSoundStream, kMonoStream };

std::int64_t floor_mod(std::int64_t value, std::int64_t modulus) noexcept {
    const std::int64_t rest = value % modulus;
    return rest < 0 ? rest + modulus : rest;
}

/// The phase of `time_ns` in a cycle, reduced in integers so that days of run time lose no precision.
double phase_rad(std::int64_t time_ns, std::int64_t period_ns) noexcept {
    return kTwoPi * static_cast<double>(floor_mod(time_ns, period_ns)) / static_cast<double>(period_ns);
}

/// Smooth value noise that repeats after `width_px`; about one feature per `cell_px`.
class ValueNoise {
public:
    ValueNoise(std::uint64_t seed, std::uint64_t layer, std::uint32_t width_px, double cell_px)
        : seed_(seed),
          layer_(layer),
          column_count_(std::max(1.0, std::round(width_px / cell_px))),
          columns_per_px_(column_count_ / width_px),
          rows_per_px_(1.0 / cell_px) {}

    /// In [-1, 1).
    [[nodiscard]] double at(double x_px, double y_px) const noexcept {
        const double column = x_px * columns_per_px_;
        const double row = y_px * rows_per_px_;
        const double fx = smooth(column - std::floor(column));
        const double fy = smooth(row - std::floor(row));
        const auto c0 = static_cast<std::uint64_t>(column);
        const auto r0 = static_cast<std::uint64_t>(row);
        const double top = knot(c0, r0) * (1 - fx) + knot(c0 + 1, r0) * fx;
        const double bottom = knot(c0, r0 + 1) * (1 - fx) + knot(c0 + 1, r0 + 1) * fx;
        return top * (1 - fy) + bottom * fy;
    }

private:
    static double smooth(double f) noexcept { return f * f * (3 - 2 * f); }
    [[nodiscard]] double knot(std::uint64_t column, std::uint64_t row) const noexcept {
        const std::uint64_t index = (layer_ << 48) | (row << 24) | (column % static_cast<std::uint64_t>(column_count_));
        return 2 * random_uniform(seed_, kTextureStream, index) - 1;
    }

    std::uint64_t seed_;
    std::uint64_t layer_;
    double column_count_;
    double columns_per_px_;
    double rows_per_px_;
};

std::uint8_t video_level(double value, double low, double high) noexcept {
    return static_cast<std::uint8_t>(std::lround(std::clamp(value, low, high)));
}

std::int16_t sound_level(double value) noexcept {
    return static_cast<std::int16_t>(std::lrint(std::clamp(value, -32768.0, 32767.0)));
}

/// One output row as a 2x2 blend of two panorama rows; `step` = bytes between horizontal neighbours.
void blend_row(const std::uint8_t* __restrict top, const std::uint8_t* __restrict bottom, std::size_t step, int fx,
               int fy, std::size_t count, std::uint8_t* __restrict out) noexcept {
    const auto w00 = static_cast<std::uint16_t>((kFractionSteps - fx) * (kFractionSteps - fy));
    const auto w01 = static_cast<std::uint16_t>(fx * (kFractionSteps - fy));
    const auto w10 = static_cast<std::uint16_t>((kFractionSteps - fx) * fy);
    const auto w11 = static_cast<std::uint16_t>(fx * fy);
    for (std::size_t i = 0; i < count; ++i) {
        const auto sum = static_cast<std::uint16_t>(top[i] * w00 + top[i + step] * w01 + bottom[i] * w10 +
                                                    bottom[i + step] * w11 + 128);
        out[i] = static_cast<std::uint8_t>(sum >> 8);
    }
}

}  // namespace

Scene::Scene(const SceneOptions& options) : options_(options) {
    const bool is_even = options.width_px % 2 == 0 && options.height_px % 2 == 0;
    if (!is_even || options.width_px < 2 * kLampPx || options.height_px < 2 * kLampPx || options.width_px > 8192 ||
        options.height_px > 8192) {
        throw Error(ErrorCode::InvalidArgument,
                    "synthetic camera: width and height must be even and within 64 to 8192 pixels");
    }
    panorama_width_px_ = static_cast<std::uint32_t>(options.width_px / kTurnsPerPx) & ~1U;
    panorama_height_px_ = options.height_px + 2 * kMarginPx + 2;
    row_bytes_ = std::size_t{panorama_width_px_} + options.width_px + 4;
    paint_panorama();
}

double Scene::focal_px() const noexcept {
    return panorama_width_px_ / kTwoPi;
}

void Scene::paint_panorama() {
    const ValueNoise walls(options_.seed, 0, panorama_width_px_, 120.0);
    const ValueNoise things(options_.seed, 1, panorama_width_px_, 24.0);
    const ValueNoise grain(options_.seed, 2, panorama_width_px_, 5.0);
    const ValueNoise blue(options_.seed, 3, panorama_width_px_, 90.0);
    const ValueNoise red(options_.seed, 4, panorama_width_px_, 90.0);
    luma_.resize(row_bytes_ * panorama_height_px_);
    chroma_.resize(row_bytes_ * (panorama_height_px_ / 2));
    for (std::uint32_t y = 0; y < panorama_height_px_; ++y) {
        std::uint8_t* row = luma_.data() + y * row_bytes_;
        for (std::uint32_t x = 0; x < panorama_width_px_; ++x) {
            const double edge = things.at(x, y) > 0.25 ? 25.0 : 0.0;  // hard edges, as objects have
            row[x] = video_level(115.0 + 55.0 * walls.at(x, y) + edge + 30.0 * grain.at(x, y), 16.0, 235.0);
        }
        std::memcpy(row + panorama_width_px_, row, row_bytes_ - panorama_width_px_);
    }
    for (std::uint32_t y = 0; y < panorama_height_px_ / 2; ++y) {
        std::uint8_t* row = chroma_.data() + y * row_bytes_;
        for (std::uint32_t x = 0; x < panorama_width_px_; x += 2) {
            row[x] = video_level(128.0 + 40.0 * blue.at(x, 2.0 * y), 16.0, 240.0);
            row[x + 1] = video_level(128.0 + 40.0 * red.at(x, 2.0 * y), 16.0, 240.0);
        }
        std::memcpy(row + panorama_width_px_, row, row_bytes_ - panorama_width_px_);
    }
}

HeadPose Scene::head_at(std::int64_t time_ns) const noexcept {
    HeadPose pose;
    if (!options_.is_walking) {
        return pose;
    }
    const double look_radps = kTwoPi * kNsPerSecond / static_cast<double>(kLookPeriodNs);
    const double step_radps = kTwoPi * kNsPerSecond / static_cast<double>(kStepPeriodNs);
    const double look = phase_rad(time_ns, kLookPeriodNs);
    pose.yaw_rate_radps = kMeanYawRateRadps + kLookYawRateRadps * std::cos(look);
    pose.yaw_rad = kMeanYawRateRadps * (static_cast<double>(time_ns) / kNsPerSecond) +
                   kLookYawRateRadps / look_radps * std::sin(look);
    // The foot lands when the head is lowest, which is when it accelerates upwards most.
    pose.height_m = -kBobMps2 / (step_radps * step_radps) * std::cos(phase_rad(time_ns - kFirstStepNs, kStepPeriodNs));
    return pose;
}

View Scene::view_at(std::int64_t time_ns) const noexcept {
    const HeadPose pose = head_at(time_ns);
    const double turns = -pose.yaw_rad / kTwoPi;
    View view;
    view.x_px = (turns - std::floor(turns)) * panorama_width_px_;
    // A higher eye sees the wall slide down the frame: the frame's top lies further up the panorama.
    view.y_px =
        kMarginPx - std::clamp(focal_px() * pose.height_m / kWallDistanceM, -double{kMarginPx}, double{kMarginPx});
    return view;
}

bool Scene::is_lamp_on(std::int64_t time_ns) const noexcept {
    return options_.is_walking && time_ns >= kFirstStepNs && (time_ns - kFirstStepNs) % kStepPeriodNs < kLampNs;
}

ImuTruth Scene::imu_at(std::int64_t time_ns) const noexcept {
    ImuTruth truth;
    truth.accel_mps2 = {0.0, kGravityMps2, 0.0};
    if (options_.is_walking) {
        truth.accel_mps2[0] = kSwayMps2 * std::sin(phase_rad(time_ns - kFirstStepNs, 2 * kStepPeriodNs));
        truth.accel_mps2[1] += kBobMps2 * std::cos(phase_rad(time_ns - kFirstStepNs, kStepPeriodNs));
        truth.gyro_radps[1] = head_at(time_ns).yaw_rate_radps;
    }
    return truth;
}

void Scene::measure_imu(std::int64_t time_ns, std::uint64_t row_index, Sample& row) const noexcept {
    constexpr double kAccelNoiseMps2 = 0.02;
    constexpr double kGyroNoiseRadps = 0.002;
    const ImuTruth truth = imu_at(time_ns);
    for (std::size_t axis = 0; axis < 3; ++axis) {
        const std::uint64_t index = row_index * 3 + axis;
        row.accel_mps2[axis] = static_cast<float>(truth.accel_mps2[axis] +
                                                  kAccelNoiseMps2 * random_normal(options_.seed, kAccelStream, index));
        row.gyro_radps[axis] = static_cast<float>(truth.gyro_radps[axis] +
                                                  kGyroNoiseRadps * random_normal(options_.seed, kGyroStream, index));
    }
}

void Scene::render_frame(std::int64_t time_ns, std::uint32_t stride_bytes, std::span<std::byte> frame) const noexcept {
    PERCEPTD_ASSERT(stride_bytes >= options_.width_px && frame.size() >= frame_bytes(stride_bytes));
    const View view = view_at(time_ns);
    const auto x_steps = static_cast<std::uint32_t>(view.x_px * kFractionSteps);
    const auto y_steps = static_cast<std::uint32_t>(view.y_px * kFractionSteps);
    auto* out = reinterpret_cast<std::uint8_t*>(frame.data());
    const std::uint8_t* source = luma_.data() + (y_steps / kFractionSteps) * row_bytes_ + x_steps / kFractionSteps;
    for (std::uint32_t y = 0; y < options_.height_px; ++y, source += row_bytes_, out += stride_bytes) {
        blend_row(source, source + row_bytes_, 1, static_cast<int>(x_steps % kFractionSteps),
                  static_cast<int>(y_steps % kFractionSteps), options_.width_px, out);
    }
    const std::uint32_t chroma_x_steps = x_steps / 2;
    const std::uint32_t chroma_y_steps = y_steps / 2;
    source = chroma_.data() + (chroma_y_steps / kFractionSteps) * row_bytes_ + 2 * (chroma_x_steps / kFractionSteps);
    for (std::uint32_t y = 0; y < options_.height_px / 2; ++y, source += row_bytes_, out += stride_bytes) {
        blend_row(source, source + row_bytes_, 2, static_cast<int>(chroma_x_steps % kFractionSteps),
                  static_cast<int>(chroma_y_steps % kFractionSteps), options_.width_px, out);
    }
    const int lamp = is_lamp_on(time_ns) ? kLampOnLuma : kLampOffLuma;
    out = reinterpret_cast<std::uint8_t*>(frame.data());
    for (std::uint32_t y = 0; y < kLampPx; ++y) {
        std::memset(out + std::size_t{y} * stride_bytes, lamp, kLampPx);
    }
}

double Scene::sound_at(double time_ns) const noexcept {
    double value = 0;
    const double since_first_step_ns = time_ns + kRoundingNs - static_cast<double>(kFirstStepNs);
    if (options_.is_walking && since_first_step_ns >= 0) {
        const double t_ns = std::fmod(since_first_step_ns, static_cast<double>(kStepPeriodNs));
        if (t_ns < kClickEndNs) {
            value += kClickAmplitude * std::exp(-t_ns / kClickDecayNs) * std::cos(kTwoPi * kClickHz * t_ns * 1e-9);
        }
    }
    const double since_first_tone_ns = time_ns + kRoundingNs - static_cast<double>(kFirstToneNs);
    if (since_first_tone_ns >= 0) {
        const double t_ns = std::fmod(since_first_tone_ns, static_cast<double>(kTonePeriodNs));
        if (t_ns < static_cast<double>(kToneNs)) {
            const auto index = static_cast<std::uint64_t>(since_first_tone_ns / static_cast<double>(kTonePeriodNs));
            const double tone_hz = 440.0 * (1.0 + 3.0 * random_uniform(options_.seed, kToneStream, index));
            const double ramp =
                std::min({1.0, t_ns / kToneRampNs, (static_cast<double>(kToneNs) - t_ns) / kToneRampNs});
            value += kToneAmplitude * ramp * std::sin(kTwoPi * tone_hz * t_ns * 1e-9);
        }
    }
    return value;
}

void Scene::render_sound(const SoundSpan& span, std::int16_t* samples) const noexcept {
    constexpr std::array<double, 2> kEarGain{1.0, 0.8};  // the room's sounds are a little to the left
    constexpr double kMonoGain = (kEarGain[0] + kEarGain[1]) / 2;
    const Stream stream = span.is_mono_mix ? kMonoStream : kSoundStream;
    for (std::uint32_t i = 0; i < span.count; ++i) {
        const double level = 32767.0 * sound_at(span.first_ns + i * span.period_ns);
        for (std::uint32_t channel = 0; channel < span.channel_count; ++channel) {
            const std::uint64_t key = (span.first_index + i) * span.channel_count + channel;
            const double noise = kSoundNoise * (2 * random_uniform(options_.seed, stream, key) - 1);
            const double gain = span.is_mono_mix ? kMonoGain : kEarGain[channel % 2];
            *samples++ = sound_level(gain * level + noise);
        }
    }
}

}  // namespace perceptd::sensor

// What a run of `perceptctl watch` has seen in all.
// Owns the counts and ten minutes of acceleration for the step cadence.
// Never keeps a window or prints.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <percept/percept.hpp>
#include <span>
#include <string>
#include <vector>

namespace perceptctl {

/// The frequency of the strongest Hann-windowed DFT line between 0.5 and 4 Hz of evenly spaced values, mean removed.
/// Nothing when there is less than one period of the lowest frequency four times over, or no movement at all.
[[nodiscard]] std::optional<double> peak_frequency_hz(std::span<const double> values, double rate_hz);

/// Magnitudes in even bins of time; the oldest ten minutes are forgotten.
class AccelerationTrack {
public:
    void add(std::int64_t time_ns, double magnitude_mps2);
    [[nodiscard]] std::optional<double> cadence_hz() const;

private:
    struct Bin {
        double sum_mps2 = 0;
        std::uint32_t count = 0;
    };
    std::int64_t first_bin_ = 0;
    std::vector<Bin> bins_;
};

/// What the summary needs of a window, copied out, so that it can be dropped when the window turns out to be revoked.
struct WindowFacts {
    explicit WindowFacts(const percept::Window& window);

    bool has_frame;
    std::uint64_t patch_kept_count;
    std::uint64_t patch_count;
    std::vector<std::uint64_t> mel_slice_indices;
    std::vector<percept_imu_row> imu_rows;
};

class Summary {
public:
    void add(const WindowFacts& window);

    [[nodiscard]] nlohmann::ordered_json to_json(const std::string& heap) const;
    [[nodiscard]] std::string to_text(const std::string& heap) const;

private:
    std::uint64_t window_count_ = 0;
    std::uint64_t window_with_video_count_ = 0;
    std::uint64_t imu_sample_count_ = 0;
    std::uint64_t accel_sample_count_ = 0;
    double accel_sum_mps2_ = 0;
    std::uint64_t mel_slice_count_ = 0;
    std::uint64_t mel_slice_lost_count_ = 0;
    std::optional<std::uint64_t> next_mel_slice_;
    std::uint64_t patch_kept_count_ = 0;
    std::uint64_t patch_count_ = 0;
    AccelerationTrack acceleration_;
};

}  // namespace perceptctl

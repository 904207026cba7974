#include "summary.hpp"

#include <cmath>
#include <complex>
#include <cstdio>
#include <numbers>

namespace perceptctl {
namespace {

constexpr double kLowestHz = 0.5;
constexpr double kHighestHz = 4.0;
constexpr std::int64_t kBinNs = 20'000'000;
constexpr double kBinRateHz = 1e9 / static_cast<double>(kBinNs);
constexpr std::size_t kBinsMax = 10 * 60 * 50;
constexpr double kStillMps2 = 1e-6;

nlohmann::ordered_json ratio(double part, std::uint64_t whole) {
    return whole == 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(part / static_cast<double>(whole));
}

}  // namespace

std::optional<double> peak_frequency_hz(std::span<const double> values, double rate_hz) {
    const auto count = static_cast<double>(values.size());
    const double duration_s = count / rate_hz;
    if (duration_s < 4 / kLowestHz) {
        return std::nullopt;
    }
    double mean = 0;
    for (const double value : values) {
        mean += value / count;
    }
    std::vector<double> windowed(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double hann = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / (count - 1));
        windowed[i] = (values[i] - mean) * hann;
    }
    // Lines a quarter of the DFT's own spacing apart find the peak between two of them too.
    const double step_hz = 0.25 / duration_s;
    double best_hz = 0;
    double best_magnitude = count * kStillMps2;
    for (double frequency_hz = kLowestHz; frequency_hz <= kHighestHz; frequency_hz += step_hz) {
        const std::complex<double> turn = std::polar(1.0, -2 * std::numbers::pi * frequency_hz / rate_hz);
        std::complex<double> phase = 1;
        std::complex<double> sum = 0;
        for (const double value : windowed) {
            sum += value * phase;
            phase *= turn;
        }
        if (std::abs(sum) > best_magnitude) {
            best_magnitude = std::abs(sum);
            best_hz = frequency_hz;
        }
    }
    return best_hz > 0 ? std::optional(best_hz) : std::nullopt;
}

void AccelerationTrack::add(std::int64_t time_ns, double magnitude_mps2) {
    const std::int64_t bin = time_ns / kBinNs;
    const auto end = first_bin_ + static_cast<std::int64_t>(bins_.size());
    // A stamp from before, or after a gap longer than all we keep, starts anew.
    if (bins_.empty() || bin < first_bin_ || bin - end > static_cast<std::int64_t>(kBinsMax)) {
        bins_.clear();
        first_bin_ = bin;
    }
    const auto index = static_cast<std::size_t>(bin - first_bin_);
    if (index >= bins_.size()) {
        bins_.resize(index + 1);
    }
    bins_[index].sum_mps2 += magnitude_mps2;
    ++bins_[index].count;
    if (bins_.size() > 2 * kBinsMax) {
        const auto excess = static_cast<std::ptrdiff_t>(bins_.size() - kBinsMax);
        bins_.erase(bins_.begin(), bins_.begin() + excess);
        first_bin_ += excess;
    }
}

std::optional<double> AccelerationTrack::cadence_hz() const {
    const std::size_t skipped = bins_.size() > kBinsMax ? bins_.size() - kBinsMax : 0;
    std::vector<double> values;
    values.reserve(bins_.size() - skipped);
    double last_mps2 = 0;
    bool started = false;
    for (std::size_t i = skipped; i < bins_.size(); ++i) {
        if (bins_[i].count > 0) {
            last_mps2 = bins_[i].sum_mps2 / bins_[i].count;
            started = true;
        }
        if (started) {
            values.push_back(last_mps2);  // an empty bin repeats the one before
        }
    }
    return peak_frequency_hz(values, kBinRateHz);
}

WindowFacts::WindowFacts(const percept::Window& window)
    : has_frame(window.has_frame()),
      patch_kept_count(window->patch_block.patch_count),
      patch_count(std::uint64_t{window->patch_block.column_count} * window->patch_block.row_count),
      imu_rows(window.imu_rows().begin(), window.imu_rows().end()) {
    mel_slice_indices.reserve(window.mel_slices().size());
    for (const percept_mel_slice& slice : window.mel_slices()) {
        mel_slice_indices.push_back(slice.slice_index);
    }
}

void Summary::add(const WindowFacts& window) {
    ++window_count_;
    window_with_video_count_ += window.has_frame ? 1 : 0;
    patch_kept_count_ += window.patch_kept_count;
    patch_count_ += window.patch_count;
    for (const std::uint64_t slice_index : window.mel_slice_indices) {
        if (next_mel_slice_ && slice_index > *next_mel_slice_) {
            mel_slice_lost_count_ += slice_index - *next_mel_slice_;
        }
        next_mel_slice_ = slice_index + 1;
        ++mel_slice_count_;
    }
    for (const percept_imu_row& row : window.imu_rows) {
        if ((row.flags & PERCEPT_IMU_NEIGHBOUR) != 0) {
            continue;  // counted in its own window
        }
        ++imu_sample_count_;
        if ((row.flags & PERCEPT_IMU_ACCEL) != 0) {
            const double magnitude_mps2 =
                std::hypot(double{row.accel_mps2[0]}, double{row.accel_mps2[1]}, double{row.accel_mps2[2]});
            ++accel_sample_count_;
            accel_sum_mps2_ += magnitude_mps2;
            acceleration_.add(row.time_ns, magnitude_mps2);
        }
    }
}

nlohmann::ordered_json Summary::to_json(const std::string& heap) const {
    nlohmann::ordered_json summary;
    summary["windows"] = window_count_;
    summary["windows_with_video"] = window_with_video_count_;
    summary["imu_samples"] = imu_sample_count_;
    summary["mel_slices"] = mel_slice_count_;
    summary["mel_slices_lost"] = mel_slice_lost_count_;
    summary["mean_accel_mps2"] = ratio(accel_sum_mps2_, accel_sample_count_);
    const std::optional<double> cadence_hz = acceleration_.cadence_hz();
    summary["step_cadence_hz"] = cadence_hz ? nlohmann::ordered_json(*cadence_hz) : nullptr;
    summary["patches_kept_fraction"] = ratio(static_cast<double>(patch_kept_count_), patch_count_);
    summary["heap"] = heap;
    return summary;
}

std::string Summary::to_text(const std::string& heap) const {
    std::string text;
    const nlohmann::ordered_json summary = to_json(heap);
    for (const auto& [key, value] : summary.items()) {
        char number[32];
        if (value.is_number_float()) {
            std::snprintf(number, sizeof(number), "%.4g", value.get<double>());
        }
        text += (text.empty() ? "" : "  ") + key + "=";
        text += value.is_number_float() ? number : value.is_string() ? value.get<std::string>() : value.dump();
    }
    return text;
}

}  // namespace perceptctl

#include "summary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace perceptctl {
namespace {

constexpr std::int64_t kKeptNs = 60'000'000'000;  // of acceleration, at least; twice this at most

nlohmann::ordered_json ratio(double part, std::uint64_t whole) {
    return whole == 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(part / static_cast<double>(whole));
}

}  // namespace

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
            keep({row.time_ns, magnitude_mps2});
        }
    }
}

void Summary::keep(const perceptd::AccelMagnitude& sample) {
    if (!acceleration_.empty() && sample.time_ns <= acceleration_.back().time_ns) {
        acceleration_.clear();  // a recording that began anew
    }
    acceleration_.push_back(sample);
    if (sample.time_ns - acceleration_.front().time_ns > 2 * kKeptNs) {
        const auto old = std::find_if(acceleration_.begin(), acceleration_.end(),
                                      [&](const auto& kept) { return sample.time_ns - kept.time_ns <= kKeptNs; });
        acceleration_.erase(acceleration_.begin(), old);
    }
}

nlohmann::ordered_json Summary::to_json(const std::string& heap) const {
    nlohmann::ordered_json summary;
    summary["windows"] = window_count_;
    summary["windows_with_video"] = window_with_video_count_;
    summary["frames"] = window_with_video_count_;
    summary["imu_samples"] = imu_sample_count_;
    summary["mel_slices"] = mel_slice_count_;
    summary["mel_slices_lost"] = mel_slice_lost_count_;
    summary["mean_accel_mps2"] = ratio(accel_sum_mps2_, accel_sample_count_);
    const std::optional<double> cadence_hz = perceptd::step_cadence_hz(acceleration_);
    summary["step_cadence_hz"] = cadence_hz ? nlohmann::ordered_json(*cadence_hz) : nullptr;
    const auto told = [this](auto percept_statistics::*member) {
        return statistics_ ? nlohmann::ordered_json((*statistics_).*member) : nlohmann::ordered_json(nullptr);
    };
    summary["bytes_copied_camera"] = told(&percept_statistics::camera_copied_bytes);
    summary["gate_reference_bytes"] = told(&percept_statistics::gate_reference_bytes);
    summary["hot_path_allocations"] = told(&percept_statistics::hot_path_allocations_count);
    summary["window_to_tokens_us"] = {{"p50", told(&percept_statistics::window_to_tokens_p50_us)},
                                      {"p99", told(&percept_statistics::window_to_tokens_p99_us)}};
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

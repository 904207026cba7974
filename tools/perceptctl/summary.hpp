// What a run of `perceptctl watch` has seen in all.
// Owns the counts and the last minute or two of acceleration for the step cadence.
// Never keeps a window or prints.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <percept/percept.hpp>
#include <string>
#include <vector>

#include "cadence.hpp"

namespace perceptctl {

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

    /// What the daemon told about its own work, at the end.
    void add(const percept_statistics& statistics) { statistics_ = statistics; }

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
    void keep(const perceptd::AccelMagnitude& sample);

    std::vector<perceptd::AccelMagnitude> acceleration_;
    std::optional<percept_statistics> statistics_;
};

}  // namespace perceptctl

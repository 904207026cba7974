// Decides which camera patches are new: a chi-square test of each patch against its last encoded value.
// Owns the reference pixels (one luma byte per frame pixel) and the per-patch state.
// Never copies, keeps or writes the frame; never compares with the previous frame, so slow drift cannot hide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "percept_layout.h"

namespace perceptd::tokens {

inline constexpr std::uint32_t kPatchPx = 16;

/// Luma rows of an NV12 frame, read in place: height_px rows of width_px bytes, stride_bytes apart.
struct LumaView {
    const std::uint8_t* data = nullptr;
    std::uint32_t width_px = 0;
    std::uint32_t height_px = 0;
    std::uint32_t stride_bytes = 0;
};

/// Sensor noise variance at mean mu is noise_gain * mu + noise_floor, in squared grey levels.
struct PatchGateOptions {
    double noise_gain = 0.02;
    double noise_floor = 1.0;                   ///< includes the 1/12 of 8-bit rounding
    double false_alarm_rate = 1e-3;             ///< of the plain threshold tau, per patch and frame
    double hysteresis = 1.3;                    ///< a sleeping patch wakes above hysteresis * tau, sleeps at <= tau
    double intra_fraction = 0.6;                ///< above this changed fraction every patch is listed
    std::uint32_t intra_interval_frames = 300;  ///< one I frame per this many frames
    std::uint32_t max_age_frames = 150;         ///< a patch is listed at the latest after this many frames
};

/// What process() decided for one frame.
struct PatchFrame {
    Status status = Status::Ok;
    std::uint32_t patch_count = 0;    ///< entries written
    std::uint32_t changed_count = 0;  ///< patches above their threshold
    bool intra = false;
    float threshold = 0;  ///< largest threshold used in this frame, grey levels (L2); bounds every skipped patch
};

/// The q quantile of chi-square with `degrees` degrees of freedom (Wilson-Hilferty; 1e-3 relative for degrees >= 64).
double chi_square_quantile(double q, double degrees) noexcept;

/// Thread-bound. Edge patches of a frame that is no multiple of 16 px are cut at the frame's border and tested
/// with their own pixel count.
class PatchGate {
public:
    /// Allocates everything. Throws Error(InvalidArgument) for empty sizes or options out of range.
    PatchGate(std::uint32_t width_px, std::uint32_t height_px, const PatchGateOptions& options = {});

    /// Tests every patch of `frame` and writes the entries to encode, in row order, to `out`. Their pixels become
    /// the reference. Full (`out` too small) and Invalid (other size, stride < width) leave the gate unchanged.
    /// Real-time: no allocation; one pass over the luma plus one over the listed patches.
    PatchFrame process(const LumaView& frame, std::span<percept_patch> out) noexcept;

    /// Makes the next frame an I frame (a gap, a camera restart, a large global motion).
    void force_intra() noexcept { intra_due_ = true; }

    [[nodiscard]] std::uint32_t column_count() const noexcept { return columns_; }
    [[nodiscard]] std::uint32_t row_count() const noexcept { return rows_; }
    [[nodiscard]] std::uint32_t patch_total() const noexcept { return columns_ * rows_; }
    /// tau of patch `index` (row order) in grey levels, without hysteresis; 0 before the first frame.
    [[nodiscard]] float tau(std::uint32_t index) const noexcept;
    /// Bytes ever copied into the reference: the gate's only pixel writes.
    [[nodiscard]] std::uint64_t reference_bytes_written() const noexcept { return reference_bytes_written_; }
    /// The block header of a frame for pack_patch_block().
    [[nodiscard]] percept_patch_block block_of(const PatchFrame& frame, std::uint64_t window_id) const noexcept;

private:
    struct Patch {
        double tau_sq = 0;
        std::uint32_t distance_sq = 0;
        std::uint16_t age_frames = 0;
        std::uint16_t age_limit = 0;
        std::uint16_t reason = 0;
        bool awake = false;
    };

    [[nodiscard]] std::uint32_t patch_width(std::uint32_t column) const noexcept;
    [[nodiscard]] std::uint32_t patch_height(std::uint32_t row) const noexcept;
    std::uint32_t test_all(const LumaView& frame, PatchFrame& result) noexcept;
    /// Takes the pixels of the row's patches [first, end) over as their reference.
    void encode(const LumaView& frame, std::uint32_t row, std::uint32_t first, std::uint32_t end) noexcept;
    [[nodiscard]] std::size_t reference_stride() const noexcept { return std::size_t{columns_} * kPatchPx; }
    [[nodiscard]] std::uint8_t* reference_at(std::uint32_t column, std::uint32_t row) noexcept {
        return reference_.data() + (row * reference_stride() + column) * kPatchPx;
    }

    std::uint32_t width_px_;
    std::uint32_t height_px_;
    std::uint32_t columns_;
    std::uint32_t rows_;
    PatchGateOptions options_;
    double wake_factor_sq_;
    double chi_square_[2][2]{};  // 2 * quantile for [cut at the bottom][cut at the right]
    std::vector<Patch> patches_;
    std::vector<std::uint8_t> reference_;  // luma, as wide and high as the patches
    std::uint64_t reference_bytes_written_ = 0;
    std::uint32_t since_intra_frames_ = 0;
    bool intra_due_ = true;
    bool first_ = true;
};

}  // namespace perceptd::tokens

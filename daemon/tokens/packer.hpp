// Writes the token blocks of one window (header, then arrays) into memory that the caller lends.
// Owns nothing.
// Never writes past the span, never writes a part of a block, never publishes a non-finite motion reading.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.hpp"
#include "percept_layout.h"
#include "tokens/mel.hpp"
#include "tokens/motion.hpp"
#include "tokens/patches.hpp"

namespace perceptd::tokens {

/// `bytes` is the block's size: written when Ok, needed when Full, 0 when Invalid.
struct PackResult {
    Status status = Status::Ok;
    std::size_t bytes = 0;
};

/// Bytes of a block with so many entries.
constexpr std::size_t patch_block_bytes(std::size_t patch_count) noexcept {
    return sizeof(percept_patch_block) + patch_count * sizeof(percept_patch);
}
constexpr std::size_t mel_block_bytes(std::size_t slice_count) noexcept {
    return sizeof(percept_mel_block) + slice_count * sizeof(percept_mel_slice);
}
constexpr std::size_t motion_block_bytes(std::size_t row_count, std::size_t feature_count) noexcept {
    return sizeof(percept_motion_block) + row_count * sizeof(percept_imu_row) +
           feature_count * sizeof(percept_motion_feature);
}

/// Full when `out` is too small (nothing is written). `out` needs no alignment. Real-time: copies only.
/// Invalid: a patch outside the header's grid, or an intra block that does not list every patch.
/// magic and patch_count are set here; the other fields come from PatchGate::block_of().
PackResult pack_patches(std::span<std::byte> out, percept_patch_block header,
                        std::span<const percept_patch> patches) noexcept;

/// As above. Invalid: a slice index that does not grow.
PackResult pack_mel(std::span<std::byte> out, std::uint64_t window_id, MelProfile profile, const AudioLevel& level,
                    std::span<const percept_mel_slice> slices) noexcept;

/// As above. Rows pass through sanitise(). Invalid: features.size() differs from the summary, or a summary that
/// is not Ok.
PackResult pack_motion(std::span<std::byte> out, std::uint64_t window_id, const MotionSummary& summary,
                       std::span<const percept_imu_row> rows, std::span<const percept_motion_feature> features,
                       const MotionOptions& options = {}) noexcept;

}  // namespace perceptd::tokens

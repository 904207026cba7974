#include "tokens/packer.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace perceptd::tokens {
namespace {

constexpr std::size_t kMaxEntries = std::numeric_limits<std::uint32_t>::max();  // counts are 32 bits wide

template <typename T>
std::byte* put(std::byte* at, const T& value) noexcept {
    std::memcpy(at, &value, sizeof(T));
    return at + sizeof(T);
}

template <typename T>
std::byte* put_all(std::byte* at, std::span<const T> values) noexcept {
    if (!values.empty()) {
        std::memcpy(at, values.data(), values.size_bytes());
    }
    return at + values.size_bytes();
}

}  // namespace

PackResult pack_patches(std::span<std::byte> out, percept_patch_block header,
                        std::span<const percept_patch> patches) noexcept {
    const std::uint64_t total = std::uint64_t{header.column_count} * header.row_count;
    const bool outside = std::any_of(patches.begin(), patches.end(), [&header](const percept_patch& patch) {
        return patch.column >= header.column_count || patch.row >= header.row_count;
    });
    if (outside || patches.size() > total || (header.intra != 0 && patches.size() != total)) {
        return {Status::Invalid, 0};
    }
    const std::size_t bytes = patch_block_bytes(patches.size());
    if (out.size() < bytes) {
        return {Status::Full, bytes};
    }
    header.magic = PERCEPT_PATCH_MAGIC;
    header.patch_count = static_cast<std::uint32_t>(patches.size());
    header.reserved = 0;
    put_all(put(out.data(), header), patches);
    return {Status::Ok, bytes};
}

PackResult pack_mel(std::span<std::byte> out, std::uint64_t window_id, MelProfile profile, const AudioLevel& level,
                    std::span<const percept_mel_slice> slices) noexcept {
    const auto not_growing = [](const percept_mel_slice& a, const percept_mel_slice& b) {
        return a.slice_index >= b.slice_index;
    };
    if (slices.size() > kMaxEntries || std::adjacent_find(slices.begin(), slices.end(), not_growing) != slices.end()) {
        return {Status::Invalid, 0};
    }
    const std::size_t bytes = mel_block_bytes(slices.size());
    if (out.size() < bytes) {
        return {Status::Full, bytes};
    }
    percept_mel_block header{};
    header.magic = PERCEPT_MEL_MAGIC;
    header.slice_count = static_cast<std::uint32_t>(slices.size());
    header.window_id = window_id;
    header.profile = static_cast<std::uint32_t>(profile);
    header.bin_count = PERCEPT_MEL_BINS;
    header.level_dbfs = level.level_dbfs;
    header.clipped_count = level.clipped_count;
    put_all(put(out.data(), header), slices);
    return {Status::Ok, bytes};
}

PackResult pack_motion(std::span<std::byte> out, std::uint64_t window_id, const MotionSummary& summary,
                       std::span<const percept_imu_row> rows, std::span<const percept_motion_feature> features,
                       const MotionOptions& options) noexcept {
    if (summary.status != Status::Ok || features.size() != summary.feature_count || rows.size() > kMaxEntries) {
        return {Status::Invalid, 0};
    }
    const std::size_t bytes = motion_block_bytes(rows.size(), features.size());
    if (out.size() < bytes) {
        return {Status::Full, bytes};
    }
    percept_motion_block header{};
    header.magic = PERCEPT_MOTION_MAGIC;
    header.row_count = static_cast<std::uint32_t>(rows.size());
    header.window_id = window_id;
    header.feature_count = static_cast<std::uint32_t>(features.size());
    header.state = static_cast<std::uint32_t>(summary.state);
    header.cadence_hz = summary.cadence_hz;
    std::copy(summary.rotation_rad.begin(), summary.rotation_rad.end(), header.rotation_rad);
    std::byte* at = put(out.data(), header);
    for (percept_imu_row row : rows) {
        sanitise(row, options);
        at = put(at, row);
    }
    put_all(at, features);
    return {Status::Ok, bytes};
}

}  // namespace perceptd::tokens

// What waits to become the token blocks of a window, and the making of those blocks.
// Owns the token stages and the slices, sound levels and rows between the window that closed and now; borrows arenas.
// Never decides which window owns what: the aligner does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arena/lease.hpp"
#include "pipeline_counters.hpp"
#include "pipeline_options.hpp"
#include "sensor/source.hpp"
#include "sound_shelf.hpp"
#include "sync/aligner.hpp"
#include "tokens/mel.hpp"
#include "tokens/motion.hpp"
#include "tokens/patches.hpp"
#include "window_record.hpp"

namespace perceptd {

/// One block of sound whose header was checked.
struct SoundBlock {
    const arena::Lease& lease;
    std::uint32_t size_bytes = 0;
    std::int64_t first_ns = 0;  ///< hub time of the first original frame
    std::int64_t end_ns = 0;
    std::span<const std::int16_t> mono;
    std::uint64_t first_mono = 0;
    std::int64_t mono_ns = 0;  ///< hub time of the first mono sample
};

/// Thread-bound (pipeline thread). Real-time: after construction no allocation, no lock.
class WindowTokens {
public:
    static constexpr std::size_t kPendingSlices = 1024;

    /// `offer`, `options` and `counters` outlive it. Throws what the token stages throw.
    WindowTokens(const sensor::Offer& offer, const PipelineOptions& options, PipelineCounters& counters);

    /// Whether one more sample of any kind finds room.
    [[nodiscard]] bool has_room() const noexcept;
    /// Takes a share of the block, and its slices and level as far as `aligner` still admits them.
    void add_sound(const SoundBlock& sound, sync::Aligner& aligner) noexcept;
    void add_row(const percept_imu_row& row) noexcept { rows_[row_count_++] = row; }
    /// Makes the blocks of a window that closed; a block without a free slot is counted and left out.
    void fill(const sync::WindowPlan& plan, WindowRecord& record) noexcept;

private:
    struct SoundLevel {
        std::int64_t at_ns = 0;
        tokens::AudioLevel level;
        std::uint32_t sample_count = 0;
    };

    void fill_patches(const sync::WindowPlan& plan, WindowRecord& record) noexcept;
    void fill_mel(const sync::WindowPlan& plan, WindowRecord& record) noexcept;
    void fill_motion(const sync::WindowPlan& plan, WindowRecord& record) noexcept;
    [[nodiscard]] tokens::AudioLevel take_level(std::int64_t until_ns) noexcept;

    const sensor::Offer& offer_;
    const PipelineOptions& options_;
    PipelineCounters& counters_;
    std::optional<tokens::PatchGate> gate_;
    std::vector<percept_patch> patch_list_;
    tokens::MelStream mel_;
    std::uint64_t next_mono_sample_ = 0;
    SoundShelf sounds_;
    std::vector<percept_mel_slice> slices_;  // waiting, in time order; sized once
    std::size_t slice_count_ = 0;
    std::vector<SoundLevel> levels_;
    std::size_t level_count_ = 0;
    tokens::MotionExtractor motion_;
    std::vector<percept_imu_row> rows_;  // waiting; rows_[0] may be the previous window's last row
    std::size_t row_count_ = 0;
    bool has_previous_row_ = false;
    std::vector<percept_imu_row> window_rows_;
    std::vector<percept_motion_feature> features_;
};

}  // namespace perceptd

// What leaves the pipeline: a closed window and the slots of its blocks, as a record that travels through a ring.
// Owns nothing by type: the lease counts of its slots travel with it, to be adopted or released once.
// Never holds bytes of samples or tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "arena/arena.hpp"
#include "sync/window.hpp"

namespace perceptd {

/// The arenas of one set of sensors; null = that kind is off.
struct StreamArenas {
    arena::Arena* camera = nullptr;
    arena::Arena* audio = nullptr;
    arena::Arena* patches = nullptr;
    arena::Arena* mel = nullptr;
    arena::Arena* motion = nullptr;
};

/// A block of a closed window; without bytes it is absent. The slot's lease count travels with it.
struct BlockRecord {
    arena::SlotRef slot;
    std::uint32_t size_bytes = 0;
};

/// A block of original sound that overlaps the window; neighbours share it.
struct SoundRecord {
    BlockRecord block;
    std::int64_t first_frame_ns = 0;  ///< hub time
};

inline constexpr std::size_t kWindowSounds = 32;  ///< blocks; more are left out, and the window is marked partial

struct WindowRecord {
    sync::WindowPlan plan;
    BlockRecord frame;
    BlockRecord patches;
    BlockRecord mel;
    BlockRecord motion;
    std::array<SoundRecord, kWindowSounds> sounds;
    std::uint32_t sound_count = 0;
    std::uint64_t lost_upstream_count = 0;
    std::int64_t tokens_took_ns = 0;  ///< from the close of the window to its last block
};

/// Ends the lease counts that `record` carries. Any thread that took it from the ring.
void release(WindowRecord& record, const StreamArenas& arenas) noexcept;

}  // namespace perceptd

// The sound blocks that wait for the windows they overlap, so that a window can name the original sound.
// Owns one lease per waiting block.
// Never copies sound, and never keeps more than half of the arena from the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arena/arena.hpp"
#include "arena/lease.hpp"
#include "window_record.hpp"

namespace perceptd {

/// Thread-bound (pipeline thread). Real-time: after construction no allocation, no lock.
class SoundShelf {
public:
    /// `arena` outlives the shelf; null = no sound: nothing is ever put.
    explicit SoundShelf(arena::Arena* arena);
    ~SoundShelf() { drop(sounds_.size()); }
    SoundShelf(const SoundShelf&) = delete;
    SoundShelf& operator=(const SoundShelf&) = delete;

    /// Takes a share of `lease`. False: the shelf was full and the oldest block had to go.
    bool put(const arena::Lease& lease, std::uint32_t size_bytes, std::int64_t first_ns, std::int64_t end_ns) noexcept;
    /// Names the blocks that overlap the window's span in `record`, each with a lease count of its own, and lets go of
    /// those that end within it. False: more overlap than a record holds; the rest is left out.
    bool fill(WindowRecord& record) noexcept;

private:
    struct Waiting {
        arena::Lease lease;
        std::uint32_t size_bytes = 0;
        std::int64_t first_ns = 0;
        std::int64_t end_ns = 0;
    };

    void drop(std::size_t count) noexcept;

    std::vector<Waiting> sounds_;  // in order; its capacity never changes
    std::size_t count_max_ = 0;
};

}  // namespace perceptd

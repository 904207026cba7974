#include "sound_shelf.hpp"

#include <algorithm>

namespace perceptd {

SoundShelf::SoundShelf(arena::Arena* arena)
    : count_max_(arena == nullptr ? 0 : std::max<std::size_t>(arena->slot_count() / 2, 1)) {
    sounds_.reserve(count_max_);
}

bool SoundShelf::put(const arena::Lease& lease, std::uint32_t size_bytes, std::int64_t first_ns,
                     std::int64_t end_ns) noexcept {
    const bool is_full = sounds_.size() == count_max_;
    if (is_full) {
        drop(1);
    }
    sounds_.push_back({lease.share(), size_bytes, first_ns, end_ns});
    return !is_full;
}

bool SoundShelf::fill(WindowRecord& record) noexcept {
    bool has_all = true;
    std::size_t past = 0;
    for (const Waiting& sound : sounds_) {
        const bool overlaps = sound.first_ns < record.plan.own_to_ns && sound.end_ns > record.plan.own_from_ns;
        if (overlaps && record.sound_count < record.sounds.size()) {
            record.sounds[record.sound_count++] = {{sound.lease.share().detach(), sound.size_bytes}, sound.first_ns};
        } else if (overlaps) {
            has_all = false;
        }
        past += sound.end_ns <= record.plan.own_to_ns ? 1 : 0;
    }
    drop(past);
    return has_all;
}

void SoundShelf::drop(std::size_t count) noexcept {
    sounds_.erase(sounds_.begin(), sounds_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace perceptd

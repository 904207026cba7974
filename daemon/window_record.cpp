#include "window_record.hpp"

#include "arena/lease.hpp"

namespace perceptd {

void release(WindowRecord& record, const StreamArenas& arenas) noexcept {
    const auto end = [](arena::Arena* arena, const BlockRecord& block) {
        if (block.size_bytes > 0) {
            arena->adopt(block.slot).end();
        }
    };
    if (record.plan.has_frame) {
        arenas.camera->adopt(record.frame.slot).end();
    }
    end(arenas.patches, record.patches);
    end(arenas.mel, record.mel);
    end(arenas.motion, record.motion);
    for (std::uint32_t i = 0; i < record.sound_count; ++i) {
        end(arenas.audio, record.sounds[i].block);
    }
}

}  // namespace perceptd

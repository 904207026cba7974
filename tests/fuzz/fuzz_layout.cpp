// Shared memory of a hostile daemon: the fuzzer's bytes are the slot, the first four say which kind of block it is.
#include <cstdlib>

#include "arena_view.hpp"
#include "failure.hpp"
#include "fake_daemon.hpp"
#include "window_view.hpp"

namespace {

namespace v1 = perceptd::v1;

struct Memory {
    fake::Arena arena;
    percept::ArenaViews views;

    explicit Memory(v1::BlockKind kind) {
        views.push_back(std::make_unique<percept::ArenaView>(arena.description(1, kind),
                                                             percept::UniqueFd(::dup(arena.slots_fd)),
                                                             percept::UniqueFd(::dup(arena.header_fd))));
    }
};

v1::Window window_of(v1::BlockKind kind, std::uint64_t offset_bytes, std::uint64_t size_bytes) {
    v1::Window window;
    v1::BlockRef* block = kind == v1::BLOCK_KIND_PATCH ? window.mutable_patches()
                          : kind == v1::BLOCK_KIND_MEL ? window.mutable_mel()
                                                       : window.mutable_motion();
    block->set_arena_id(1);
    block->set_generation(2);
    block->set_offset_bytes(offset_bytes);
    block->set_size_bytes(size_bytes);
    return window;
}

template <typename Element>
void within(const Element* elements, std::uint32_t count, const std::byte* begin, std::size_t size_bytes) {
    const auto* const first = reinterpret_cast<const std::byte*>(elements);
    if (elements != nullptr && (first < begin || first + count * sizeof(Element) > begin + size_bytes)) {
        std::abort();
    }
}

/// The header page itself, spoilt.
void open_header(const std::uint8_t* data, std::size_t size) {
    fake::Arena arena;
    std::memcpy(arena.header, data, std::min(size, sizeof(percept_arena_header)));
    try {
        const percept::ArenaView view(arena.description(1, v1::BLOCK_KIND_FRAME),
                                      percept::UniqueFd(::dup(arena.slots_fd)),
                                      percept::UniqueFd(::dup(arena.header_fd)));
        static_cast<void>(view.generation(1));
    } catch (const percept::Failure&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Memory memories[] = {Memory(v1::BLOCK_KIND_PATCH), Memory(v1::BLOCK_KIND_MEL),
                                Memory(v1::BLOCK_KIND_MOTION)};
    if (size < 4) {
        return 0;
    }
    const std::size_t selected = data[0] % 4;
    if (selected == 3) {
        open_header(data + 4, size - 4);
        return 0;
    }
    Memory& memory = memories[selected];
    const std::size_t used = std::min(size - 4, fake::kSlotBytes);
    std::memset(memory.arena.slots, 0, 4096);
    std::memcpy(memory.arena.slots, data + 4, used);
    const std::uint64_t offset_bytes = data[1];
    const std::uint64_t size_bytes = data[2] == 255 ? used : std::uint64_t{data[2]} * 16 + data[3];
    try {
        const percept::WindowView view(window_of(memory.views[0]->kind(), offset_bytes, size_bytes), memory.views,
                                       nullptr);
        v1::BlockRef whole;
        whole.set_size_bytes(fake::kSlotBytes);
        const std::byte* const begin = memory.views[0]->bytes(whole).data() + offset_bytes;
        const percept_window& window = view.view();
        within(window.patches, window.patch_block.patch_count, begin, size_bytes);
        within(window.mel_slices, window.mel_block.slice_count, begin, size_bytes);
        within(window.imu_rows, window.motion_block.row_count, begin, size_bytes);
        within(window.motion_features, window.motion_block.feature_count, begin, size_bytes);
    } catch (const percept::Failure&) {
    }
    return 0;
}

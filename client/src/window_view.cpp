#include "window_view.hpp"

#include <algorithm>
#include <cstring>

#include "failure.hpp"

namespace percept {
namespace {

namespace v1 = perceptd::v1;

constexpr std::size_t kBlockAlignment = 8;

/// The copy of a block's head that all later checks use.
template <typename Block>
Block copied_head(std::span<const std::byte> bytes, std::uint32_t magic, const char* name) {
    Block block{};
    if (bytes.size() < sizeof(Block) || reinterpret_cast<std::uintptr_t>(bytes.data()) % kBlockAlignment != 0) {
        throw_protocol(std::string("a short or misaligned ") + name + " block");
    }
    std::memcpy(&block, bytes.data(), sizeof(Block));
    if (block.magic != magic) {
        throw_protocol(std::string("a ") + name + " block without its magic number");
    }
    return block;
}

/// The array of count elements at the offset; NULL when empty.
template <typename Element>
const Element* array_at(std::span<const std::byte> bytes, std::size_t offset_bytes, std::uint32_t count,
                        const char* name) {
    if (offset_bytes > bytes.size() || count > (bytes.size() - offset_bytes) / sizeof(Element)) {
        throw_protocol(std::to_string(count) + " " + name + " in " + std::to_string(bytes.size()) + " bytes");
    }
    return count == 0 ? nullptr : reinterpret_cast<const Element*>(bytes.data() + offset_bytes);
}

}  // namespace

WindowView::WindowView(const v1::Window& message, const ArenaViews& arenas, const v1::CameraFormat* camera) {
    if (message.t1_ns() < message.t0_ns()) {
        throw_protocol("a window that ends before it begins");
    }
    view_.id = message.id();
    view_.t0_ns = message.t0_ns();
    view_.t1_ns = message.t1_ns();
    view_.flags = message.flags();
    view_.close_reason = static_cast<std::uint32_t>(message.close_reason());
    view_.clock_epoch = message.clock_epoch();
    const v1::DropCounters& drops = message.drops();
    view_.drops = {drops.lost_unread_count(), drops.lost_unreleased_count(), drops.revoked_count(),
                   drops.lost_upstream_count()};
    try {
        if (message.has_frame()) {
            fill_frame(take(message.frame().block(), v1::BLOCK_KIND_FRAME, arenas), message.frame(), camera);
        }
        if (message.has_patches()) {
            fill_patches(take(message.patches(), v1::BLOCK_KIND_PATCH, arenas));
        }
        if (message.has_mel()) {
            fill_mel(take(message.mel(), v1::BLOCK_KIND_MEL, arenas));
        }
        if (message.has_motion()) {
            fill_motion(take(message.motion(), v1::BLOCK_KIND_MOTION, arenas));
        }
        if (static_cast<std::size_t>(message.sounds_size()) > kSoundsMax) {
            throw_protocol(std::to_string(message.sounds_size()) + " sound blocks in one window");
        }
        sounds_.reserve(static_cast<std::size_t>(message.sounds_size()));
        for (const v1::Sound& sound : message.sounds()) {
            fill_sound(take(sound.block(), v1::BLOCK_KIND_AUDIO, arenas), sound.first_frame_ns());
        }
        view_.sounds = sounds_.empty() ? nullptr : sounds_.data();
        view_.sound_count = static_cast<std::uint32_t>(sounds_.size());
    } catch (const Failure&) {
        // A slot that was being rewritten while we looked makes the window void; the daemon is not to blame.
        if (is_valid()) {
            end_reads();
            throw;
        }
    }
}

WindowView::~WindowView() {
    end_reads();
}

void WindowView::end_reads() noexcept {
    for (std::size_t i = 0; i < slot_count_; ++i) {
        slots_[i].arena->end_read();
    }
}

bool WindowView::is_valid() const noexcept {
    return std::all_of(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(slot_count_),
                       [](const Slot& slot) { return slot.arena->generation(slot.slot_index) == slot.generation; });
}

std::span<const std::byte> WindowView::take(const v1::BlockRef& block, v1::BlockKind kind, const ArenaViews& arenas) {
    const auto arena = std::find_if(arenas.begin(), arenas.end(),
                                    [&block](const auto& candidate) { return candidate->id() == block.arena_id(); });
    if (arena == arenas.end() || (*arena)->kind() != kind) {
        throw_protocol("a block in the unknown or unfit arena " + std::to_string(block.arena_id()));
    }
    const std::span<const std::byte> bytes = (*arena)->bytes(block);
    slots_[slot_count_++] = {arena->get(), block.slot_index(), block.generation()};
    (*arena)->begin_read();
    return bytes;
}

void WindowView::fill_frame(std::span<const std::byte> bytes, const v1::Frame& frame, const v1::CameraFormat* camera) {
    if (camera == nullptr) {
        throw_protocol("a frame in a session without a camera");
    }
    const std::uint64_t luma_bytes = std::uint64_t{camera->stride_bytes()} * camera->height_px();
    const std::uint64_t chroma_bytes = std::uint64_t{camera->stride_bytes()} * ((camera->height_px() + 1) / 2);
    if (bytes.size() < luma_bytes + chroma_bytes) {
        throw_protocol("a frame of " + std::to_string(bytes.size()) + " bytes that needs " +
                       std::to_string(luma_bytes + chroma_bytes));
    }
    view_.frame.luma = reinterpret_cast<const std::uint8_t*>(bytes.data());
    view_.frame.chroma = view_.frame.luma + luma_bytes;
    view_.frame.width_px = camera->width_px();
    view_.frame.height_px = camera->height_px();
    view_.frame.stride_bytes = camera->stride_bytes();
    view_.frame.exposure_midpoint_ns = frame.exposure_midpoint_ns();
    view_.frame.sensor_ns = frame.sensor_ns();
    view_.frame.sequence = frame.sequence();
}

void WindowView::fill_patches(std::span<const std::byte> bytes) {
    const auto block = copied_head<percept_patch_block>(bytes, PERCEPT_PATCH_MAGIC, "patch");
    if (std::uint64_t{block.patch_count} > std::uint64_t{block.column_count} * block.row_count) {
        throw_protocol("more patches than the grid has");
    }
    view_.patches = array_at<percept_patch>(bytes, sizeof(block), block.patch_count, "patches");
    view_.patch_block = block;
}

void WindowView::fill_mel(std::span<const std::byte> bytes) {
    const auto block = copied_head<percept_mel_block>(bytes, PERCEPT_MEL_MAGIC, "mel");
    if (block.bin_count != PERCEPT_MEL_BINS) {
        throw_protocol("mel slices of " + std::to_string(block.bin_count) + " bins");
    }
    view_.mel_slices = array_at<percept_mel_slice>(bytes, sizeof(block), block.slice_count, "mel slices");
    view_.mel_block = block;
}

void WindowView::fill_motion(std::span<const std::byte> bytes) {
    const auto block = copied_head<percept_motion_block>(bytes, PERCEPT_MOTION_MAGIC, "motion");
    const auto* const rows = array_at<percept_imu_row>(bytes, sizeof(block), block.row_count, "IMU rows");
    view_.motion_features = array_at<percept_motion_feature>(
        bytes, sizeof(block) + block.row_count * sizeof(percept_imu_row), block.feature_count, "motion features");
    view_.imu_rows = rows;
    view_.motion_block = block;
}

void WindowView::fill_sound(std::span<const std::byte> bytes, std::int64_t first_frame_ns) {
    percept_audio_block block{};
    if (bytes.size() < sizeof(block) || reinterpret_cast<std::uintptr_t>(bytes.data()) % kBlockAlignment != 0) {
        throw_protocol("a short or misaligned sound block");
    }
    std::memcpy(&block, bytes.data(), sizeof(block));
    const auto samples_at = [bytes](std::uint32_t offset_bytes, std::uint64_t count) {
        if (offset_bytes % alignof(std::int16_t) != 0 || offset_bytes > bytes.size() ||
            count > (bytes.size() - offset_bytes) / sizeof(std::int16_t)) {
            throw_protocol(std::to_string(count) + " sound samples in " + std::to_string(bytes.size()) + " bytes");
        }
        return reinterpret_cast<const std::int16_t*>(bytes.data() + offset_bytes);
    };
    sounds_.push_back(
        {.first_frame_ns = first_frame_ns,
         .block = block,
         .original = samples_at(block.original_offset_bytes, std::uint64_t{block.frame_count} * block.channel_count),
         .mono = samples_at(block.mono_offset_bytes, block.mono_count)});
}

}  // namespace percept

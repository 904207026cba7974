// One received window: the public view, and the slots that it stands on.
// Owns nothing but the view; the arenas outlive it.
// Never shows a count or a pointer that was not checked against the slot's size.
#pragma once

#include <perceptd/v1/channel.pb.h>

#include <array>
#include <memory>
#include <vector>

#include "arena_view.hpp"
#include "percept/percept.h"

namespace percept {

using ArenaViews = std::vector<std::unique_ptr<ArenaView>>;

class WindowView {
public:
    /// Checks the message; construction starts the CPU reads that destruction ends. Throws Failure (protocol), but not
    /// for a window that was revoked meanwhile: that one is_valid() denies.
    WindowView(const perceptd::v1::Window& message, const ArenaViews& arenas, const perceptd::v1::CameraFormat* camera);
    WindowView(const WindowView&) = delete;
    WindowView& operator=(const WindowView&) = delete;
    ~WindowView();

    [[nodiscard]] const percept_window& view() const noexcept { return view_; }

    /// True: every slot still has the generation that the message named.
    [[nodiscard]] bool is_valid() const noexcept;

private:
    struct Slot {
        const ArenaView* arena;
        std::uint32_t slot_index;
        std::uint64_t generation;
    };

    std::span<const std::byte> take(const perceptd::v1::BlockRef& block, perceptd::v1::BlockKind kind,
                                    const ArenaViews& arenas);
    void end_reads() noexcept;
    void fill_frame(std::span<const std::byte> bytes, const perceptd::v1::Frame& frame,
                    const perceptd::v1::CameraFormat* camera);
    void fill_patches(std::span<const std::byte> bytes);
    void fill_mel(std::span<const std::byte> bytes);
    void fill_motion(std::span<const std::byte> bytes);
    void fill_sound(std::span<const std::byte> bytes, std::int64_t first_frame_ns);

    percept_window view_{};
    static constexpr std::size_t kSoundsMax = 64;

    std::vector<percept_sound> sounds_;
    std::array<Slot, 4 + kSoundsMax> slots_{};
    std::size_t slot_count_ = 0;
};

}  // namespace percept

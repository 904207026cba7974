// What the daemon hands to sessions: closed windows with the leases of their slots, and what is told about them.
// A WindowOut owns its leases; everything else borrows.
// Never holds bytes of samples, never a protobuf type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "arena/arena.hpp"
#include "arena/lease.hpp"
#include "sensor/sample.hpp"

namespace perceptd::session {

/// A set of sensor kinds.
class SensorSet {
public:
    constexpr SensorSet() noexcept = default;
    constexpr void add(sensor::Kind kind) noexcept { bits_ = static_cast<std::uint8_t>(bits_ | bit(kind)); }
    constexpr void remove(SensorSet other) noexcept { bits_ = static_cast<std::uint8_t>(bits_ & ~other.bits_); }
    [[nodiscard]] constexpr bool has(sensor::Kind kind) const noexcept { return (bits_ & bit(kind)) != 0; }
    [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
    [[nodiscard]] constexpr bool intersects(SensorSet other) const noexcept { return (bits_ & other.bits_) != 0; }
    friend constexpr bool operator==(SensorSet, SensorSet) = default;

private:
    static constexpr std::uint8_t bit(sensor::Kind kind) noexcept {
        return static_cast<std::uint8_t>(1u << sensor::index_of(kind));
    }
    std::uint8_t bits_ = 0;
};

/// What an arena's slots hold; the values of BlockKind in channel.proto.
enum class BlockKind : std::uint8_t { Frame = 1, Audio = 2, Patch = 3, Mel = 4, Motion = 5 };

/// The sensor whose grant a block of `kind` needs.
constexpr sensor::Kind sensor_of(BlockKind kind) noexcept {
    switch (kind) {
        case BlockKind::Frame:
        case BlockKind::Patch: return sensor::Kind::Camera;
        case BlockKind::Audio:
        case BlockKind::Mel: return sensor::Kind::Microphone;
        case BlockKind::Motion: return sensor::Kind::Imu;
    }
    return sensor::Kind::Camera;
}

/// The values of CloseReason in channel.proto.
enum class WindowClosed : std::uint8_t { Complete = 1, Deadline = 2, Epoch = 3, End = 4 };

/// Part of a published slot. Without a lease the block is absent.
struct BlockOut {
    std::uint32_t arena_id = 0;
    arena::Lease lease;
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
};

inline constexpr std::size_t kSoundsMax = 32;  ///< sound blocks of one window

struct SoundOut {
    BlockOut block;
    std::int64_t first_frame_ns = 0;
};

/// A closed window on its way to any number of sessions; each takes its own leases.
struct WindowOut {
    std::uint64_t id = 0;
    std::int64_t t0_ns = 0;
    std::int64_t t1_ns = 0;
    std::uint32_t flags = 0;  ///< WindowFlag bits of channel.proto
    WindowClosed closed = WindowClosed::Complete;
    std::uint64_t clock_epoch = 0;
    BlockOut frame;
    std::int64_t exposure_midpoint_ns = 0;
    std::int64_t frame_sensor_ns = 0;
    std::uint64_t frame_sequence = 0;
    BlockOut patches;
    BlockOut mel;
    BlockOut motion;
    std::array<SoundOut, kSoundsMax> sounds;
    std::size_t sound_count = 0;
    std::uint64_t lost_upstream_count = 0;  ///< since the stream began
};

/// What a session has seen since Subscribe, in windows.
struct Counters {
    std::uint64_t sent_count = 0;
    std::uint64_t released_count = 0;
    std::uint64_t lost_unread_count = 0;
    std::uint64_t lost_unreleased_count = 0;
    std::uint64_t revoked_count = 0;
    std::uint64_t lost_upstream_count = 0;
};

/// The values of NoticeKind in channel.proto.
enum class NoticeKind : std::uint8_t {
    SensorLost = 1,
    SensorRestored = 2,
    GrantRevoked = 3,
    EndOfStream = 4,
    ShuttingDown = 5,
    SessionEnd = 6,
};

}  // namespace perceptd::session

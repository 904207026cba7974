// What sessions need of the daemon: streams to subscribe to, and a place for the sensors of provider processes.
// Owns nothing; a Provision owns the descriptors that it carries.
// Never seen by the stages before: the daemon implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "sensor/source.hpp"
#include "session/answers.hpp"
#include "session/delivery.hpp"

namespace perceptd::session {

/// One arena on offer. An arena holds one kind only: whoever maps it sees all of its slots.
struct ArenaOffer {
    std::uint32_t id = 0;
    BlockKind kind = BlockKind::Frame;
    const arena::Arena* arena = nullptr;  ///< sealed; outlives every session attached to it
};

struct StreamOffer {
    std::vector<ArenaOffer> arenas;
    std::optional<sensor::CameraFormat> camera;
    std::optional<sensor::AudioFormat> audio;
    std::optional<sensor::ImuFormat> imu;
};

/// What the daemon did since the sensors were last switched; the fields of PipelineStatistics in channel.proto.
struct StreamStatistics {
    std::uint64_t windows_closed_count = 0;
    std::uint64_t hot_path_allocations_count = 0;
    std::uint64_t camera_copied_bytes = 0;
    std::uint64_t gate_reference_bytes = 0;
    std::int64_t window_to_tokens_p50_ns = 0;
    std::int64_t window_to_tokens_p99_ns = 0;
    std::int64_t window_to_tokens_max_ns = 0;
    std::uint64_t mel_slices_lost_count = 0;
    std::uint64_t imu_rows_lost_count = 0;
    std::uint64_t invalid_samples_count = 0;
};

/// Slots that a provider maps writable before they are sealed.
struct ProvidedSlots {
    UniqueFd fd;
    std::uint32_t slot_count = 0;
    std::size_t slot_stride_bytes = 0;
    std::size_t slot_bytes = 0;
};

struct Provision {
    UniqueFd ring_fd;
    std::size_t ring_bytes = 0;
    UniqueFd doorbell_fd;
    std::optional<ProvidedSlots> camera;
    std::optional<ProvidedSlots> audio;
};

/// Threads: main thread. A sensor is on exactly while a session is attached to it.
class Feed {
public:
    virtual ~Feed() = default;
    /// Switches on what is not on yet and gives the arenas. Throws Error(SensorUnavailable).
    virtual StreamOffer attach(std::uint64_t session_id, SensorSet sensors) = 0;
    /// Ends what attach() began; the session's leases have ended before.
    virtual void detach(std::uint64_t session_id, SensorSet sensors) noexcept = 0;
    [[nodiscard]] virtual StreamStatistics statistics() const noexcept { return {}; }
    /// Null: this daemon runs no models.
    [[nodiscard]] virtual Answers* answers() noexcept { return nullptr; }

    /// Takes in a provider that is authorised. Throws Error when the offer cannot be met.
    virtual Provision provide(std::uint64_t, const sensor::Offer&) {
        throw Error(ErrorCode::Unsupported, "this daemon takes no sensors from other processes");
    }
    /// The provider has its mappings: its sensors exist from now on. Throws Error, std::system_error.
    virtual void provider_ready(std::uint64_t) {}
    /// The session of a provider ended, at any stage.
    virtual void provider_gone(std::uint64_t) noexcept {}
};

}  // namespace perceptd::session

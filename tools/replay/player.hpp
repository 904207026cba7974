// Plays a recording into a SensorProvider: frames and sound straight into the slots, stamps moved to the hub clock.
// Owns the counters of one run.
// Never decodes ahead of what the daemon has room for.
#pragma once

#include <perceptd/v1/channel.pb.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "recording.hpp"
#include "sensor_provider.hpp"

namespace perceptd::replay {

struct PlayerOptions {
    bool is_realtime = true;  ///< false: as fast as the daemon takes it
    bool loops = false;       ///< begins again at the end, in unbroken time
};

/// What the daemon is offered for a recording. `origin` is shown to people.
[[nodiscard]] v1::Provide offer_of(const Recording& recording, const std::string& origin);

/// One run, from the recording's start to its end or until the daemon wants something else. Thread-bound.
class Player {
public:
    enum class Outcome { Ended, Stopped, Damaged };
    using Open = std::function<std::unique_ptr<Recording>()>;

    Player(SensorProvider& provider, const ProviderRun& run, PlayerOptions options);

    /// Plays what `open` opens. Damaged: fault() says what and where; all before was played and the streams were ended.
    /// Throws percept::Failure when the daemon is gone.
    Outcome play(const Open& open);
    [[nodiscard]] const std::string& fault() const noexcept { return fault_; }
    /// "3.2 s, 96 frames, 150 sound blocks, 634 samples".
    [[nodiscard]] std::string progress() const;

private:
    struct Stream {
        std::uint64_t count = 0;
        std::int64_t last_ns = -1;
        std::int64_t marked_ns = 0;
    };

    [[nodiscard]] bool play_once(Recording& recording);
    [[nodiscard]] static std::int64_t length_of(const Recording& recording, const Event& event);
    [[nodiscard]] bool play_event(Recording& recording, const Event& event);
    [[nodiscard]] bool play_frame(Recording& recording, const Frame& frame);
    [[nodiscard]] bool play_sound(const Recording& recording, const AudioBlock& block);
    [[nodiscard]] bool play_motion(const ImuRow& row);
    [[nodiscard]] bool mark_others(std::uint32_t stream, std::int64_t time_ns);
    [[nodiscard]] percept_feed_record record_at(std::uint32_t stream, std::int64_t time_ns);
    void end_streams(std::uint32_t flags);
    void report();

    SensorProvider& provider_;
    ProviderRun run_;
    PlayerOptions options_;
    std::array<Stream, 3> streams_;
    std::int64_t pass_start_ns_ = 0;  ///< of this pass through the recording, since the run's start
    std::int64_t newest_ns_ = 0;
    std::int64_t covered_ns_ = 0;   ///< where the last event of any stream ends
    std::uint64_t pass_frame_ = 0;  ///< sound frames of the passes before
    std::uint64_t pass_mono_ = 0;
    std::uint64_t next_frame_ = 0;
    std::uint64_t next_mono_ = 0;
    std::int64_t reported_at_ns_ = 0;
    std::string fault_;
};

}  // namespace perceptd::replay

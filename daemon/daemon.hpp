// The daemon: builds the stages in the order of the data flow, connects them to sessions, and takes them down in
// reverse. Owns every stage. Sensors run exactly while a session holds them. Never does per-frame work itself: it hands
// closed windows from the pipeline to the sessions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arena/arena.hpp"
#include "base/event_loop.hpp"
#include "bus/daemon_view.hpp"
#include "pipeline.hpp"
#include "sensor/source.hpp"
#include "session/authority.hpp"
#include "session/listener.hpp"
#include "session/quota.hpp"
#include "session/registry.hpp"
#include "settings.hpp"

namespace perceptd {

struct DaemonOptions {
    Settings settings;
    std::string channel_path;          ///< where channel.sock is made when systemd passes none
    std::string device_root = "/dev";  ///< heaps are looked for below it
};

/// Thread-bound (main thread). The constructor throws std::system_error or Error when the daemon cannot serve.
class Daemon final : public bus::DaemonView, private session::Feed {
public:
    Daemon(EventLoop& loop, session::Authority& authority, DaemonOptions options);
    ~Daemon() override;

    /// Tells sessions that the daemon goes, then ends them.
    void shut_down() noexcept;
    /// Takes over the keys that the schema marks live; nothing is interrupted.
    void apply_live(const Settings& settings) noexcept;
    /// Moves while the pipeline thread is well; constant while no sensor is held.
    [[nodiscard]] std::uint64_t heartbeat_count() const noexcept;
    [[nodiscard]] bool is_sensing() const noexcept { return pipeline_ != nullptr; }

    [[nodiscard]] std::vector<sensor::Kind> sensors() const override;
    [[nodiscard]] bus::SensorState sensor_state(sensor::Kind kind) const override;
    [[nodiscard]] session::Registry& sessions() noexcept override { return sessions_; }
    [[nodiscard]] std::string configuration() const override { return to_json_text(options_.settings); }

private:
    session::StreamOffer attach(std::uint64_t session_id, session::SensorSet sensors) override;
    void detach(std::uint64_t session_id, session::SensorSet sensors) noexcept override;

    void make_source();
    void make_arenas();
    void restart_pipeline();
    void restart_or_retry();
    void check_first_samples();
    void deliver_windows();
    [[nodiscard]] bool held(sensor::Kind kind) const noexcept { return holders_[sensor::index_of(kind)] > 0; }

    EventLoop& loop_;
    DaemonOptions options_;
    std::unique_ptr<sensor::Source> source_;  // null: no sensor is configured
    std::unique_ptr<arena::Arena> camera_arena_;
    std::unique_ptr<arena::Arena> audio_arena_;
    std::unique_ptr<arena::Arena> patch_arena_;
    std::unique_ptr<arena::Arena> mel_arena_;
    std::unique_ptr<arena::Arena> motion_arena_;
    std::array<std::uint32_t, sensor::kKindCount> holders_{};
    std::uint64_t next_window_id_ = 0;
    bool restart_scheduled_ = false;
    std::unique_ptr<Pipeline> pipeline_;
    std::int64_t sensing_since_ns_ = 0;  // hub time of the pipeline's start
    StreamArenas pipeline_arenas_;
    std::unique_ptr<EventSource> windows_ready_;
    session::Quota quota_;
    session::Registry sessions_;
    std::unique_ptr<EventSource> restart_again_;  ///< armed while sensors that are held could not be started
    bool sensors_lost_ = false;
    std::unique_ptr<EventSource> first_samples_due_;
    std::array<std::uint64_t, sensor::kKindCount> delivered_before_{};
    std::optional<session::Listener> listener_;
};

}  // namespace perceptd

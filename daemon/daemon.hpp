// The daemon: builds the stages in the order of the data flow, connects them to sessions, and takes them down in
// reverse. Owns every stage. Sensors run exactly while a session holds them. Never does per-frame work itself: it hands
// closed windows from the pipeline to the sessions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "answer_desk.hpp"
#include "base/event_loop.hpp"
#include "bus/daemon_view.hpp"
#include "model/catalog.hpp"
#include "pipeline.hpp"
#include "sensor_bank.hpp"
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
    std::string root;                  ///< the store's folder lies below it
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
    void on_sensors_changed(std::function<void()> handler) override { sensors_changed_ = std::move(handler); }
    [[nodiscard]] bus::SensorState sensor_state(sensor::Kind kind) const override;
    [[nodiscard]] session::Registry& sessions() noexcept override { return sessions_; }
    [[nodiscard]] std::string configuration() const override { return to_json_text(options_.settings); }
    [[nodiscard]] store::Store& store() noexcept override { return desk_.store(); }

private:
    session::StreamOffer attach(std::uint64_t session_id, session::SensorSet sensors) override;
    void detach(std::uint64_t session_id, session::SensorSet sensors) noexcept override;

    void find_models();
    [[nodiscard]] session::StreamStatistics statistics() const noexcept override;
    [[nodiscard]] session::Answers* answers() noexcept override { return &desk_; }
    session::Provision provide(std::uint64_t session_id, const sensor::Offer& offer) override;
    void provider_ready(std::uint64_t session_id) override;
    void provider_gone(std::uint64_t session_id) noexcept override;

    void end_provider(std::uint64_t session_id);
    void start_provider(std::uint64_t session_id, const sensor::FeedRun& run);
    void tell_sensors_changed();
    void schedule_restart() noexcept;
    void stop_pipeline() noexcept;
    void restart_pipeline();
    void restart_or_retry();
    void check_first_samples();
    [[nodiscard]] PipelineOptions pipeline_options() const;
    void deliver_windows();
    void deliver(const WindowRecord& record);
    void reclaim_slots() noexcept;
    [[nodiscard]] session::SensorSet held_kinds() const noexcept;
    [[nodiscard]] bool held(sensor::Kind kind) const noexcept { return holders_[sensor::index_of(kind)] > 0; }

    EventLoop& loop_;
    DaemonOptions options_;
    SensorBank bank_;
    std::array<std::uint32_t, sensor::kKindCount> holders_{};
    std::uint64_t next_window_id_ = 0;
    bool restart_scheduled_ = false;
    bool has_ended_ = false;  ///< the recording is over; the next session begins it anew
    std::uint64_t allocations_before_ = 0;
    std::unique_ptr<Pipeline> pipeline_;
    std::int64_t sensing_since_ns_ = 0;  ///< hub time of the pipeline's start
    StreamArenas pipeline_arenas_;
    std::unique_ptr<EventSource> windows_ready_;
    std::map<std::uint64_t, std::unique_ptr<EventSource>> provider_faults_;
    std::set<std::uint64_t> started_providers_;
    model::Catalog models_;
    std::unique_ptr<EventSource> evicting_;
    AnswerDesk desk_;
    session::Quota quota_;
    session::Registry sessions_;
    std::unique_ptr<EventSource> look_again_;     ///< armed while a recording waits for its readers
    std::unique_ptr<EventSource> restart_again_;  ///< armed while sensors that are held could not be started
    std::unique_ptr<EventSource> first_samples_due_;
    bool sensors_lost_ = false;
    std::function<void()> sensors_changed_;  ///< of the bus
    std::optional<session::Listener> listener_;
};

}  // namespace perceptd

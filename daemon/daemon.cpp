#include "daemon.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/clock.hpp"
#include "base/hot_path.hpp"
#include "base/log.hpp"

namespace perceptd {
namespace {

using sensor::Kind;
using session::BlockKind;

// Fewer free slots than this and clients give back their oldest windows.
constexpr std::uint32_t kFreeSlotsMin = 4;

session::WindowClosed closed_as(const sync::WindowPlan& plan) noexcept {
    if ((plan.flags & sync::kEpoch) != 0) {
        return session::WindowClosed::Epoch;
    }
    switch (plan.close_reason) {
        case sync::CloseReason::Complete: return session::WindowClosed::Complete;
        case sync::CloseReason::Deadline: return session::WindowClosed::Deadline;
        case sync::CloseReason::End: return session::WindowClosed::End;
    }
    return session::WindowClosed::Complete;
}

session::BlockOut block_of(std::uint32_t arena_id, arena::Arena* arena, const BlockRecord& record) noexcept {
    session::BlockOut block;
    block.arena_id = arena_id;
    if (arena != nullptr && record.size_bytes > 0) {
        block.lease = arena->adopt(record.slot);
        block.size_bytes = record.size_bytes;
    }
    return block;
}

session::QuotaLimits limits_of(const SessionSettings& settings) {
    session::QuotaLimits limits;
    limits.sessions_total = settings.max_count;
    // Half: connections that say nothing must not lock everybody else out.
    limits.sessions_per_uid = (settings.max_count + 1) / 2;
    limits.owner_uid = ::geteuid();
    limits.windows_per_session = settings.max_windows_in_flight;
    limits.windows_per_uid = settings.max_windows_in_flight * settings.max_count;
    return limits;
}

model::CatalogOptions catalog_options_of(const ModelSettings& settings) {
    const bool is_copied = settings.backing == ModelBacking::SealedCopy;
    return {settings.folders,
            is_copied ? model::Backing::SealedCopy : model::Backing::Mapped,
            {settings.idle_eviction_s * kNsPerSecond}};
}

}  // namespace

Daemon::Daemon(EventLoop& loop, session::Authority& authority, DaemonOptions options)
    : loop_(loop),
      options_(std::move(options)),
      bank_(options_.settings, options_.device_root),
      models_(catalog_options_of(options_.settings.models)),
      desk_(loop, options_.settings, options_.root, catalog_options_of(options_.settings.models),
            [this] { sessions_.pump_answers(); }),
      quota_(limits_of(options_.settings.sessions)),
      sessions_(loop, quota_, authority, *this),
      look_again_(loop.add_timer([this] { deliver_windows(); })),
      restart_again_(loop.add_timer([this] { restart_or_retry(); })),
      first_samples_due_(loop.add_timer([this] { check_first_samples(); })) {
    find_models();
    sessions_.on_opened([this](session::Session& session) { desk_.book().session_opened(session.peer()); });
    listener_.emplace(loop, options_.channel_path, [this](UniqueFd socket) { sessions_.accept(std::move(socket)); });
}

Daemon::~Daemon() {
    shut_down();
    windows_ready_.reset();
    pipeline_.reset();
    provider_faults_.clear();
    listener_.reset();
}

void Daemon::find_models() {
    models_.scan();
    for (const model::CatalogEntry& entry : models_.list()) {
        if (entry.state == model::PackageState::Broken) {
            log::warning("model", "ignoring a package: " + entry.reason);
        } else {
            log::info("model", entry.name + " " + entry.version + " in " + entry.folder);
        }
    }
    const std::int64_t period_ns = options_.settings.models.idle_eviction_s * kNsPerSecond;
    evicting_ = loop_.add_timer([this, period_ns] {
        models_.evict_idle(monotonic_ns());
        evicting_->arm_at(monotonic_ns() + period_ns);
    });
    evicting_->arm_at(monotonic_ns() + period_ns);
}

void Daemon::shut_down() noexcept {
    if (listener_) {
        listener_->stop();
    }
    sessions_.notify(session::NoticeKind::ShuttingDown, "the daemon stops");
    sessions_.drop_all(session::EndCause::Shutdown, "the daemon stops");
}

void Daemon::apply_live(const Settings& settings) noexcept {
    log::set_level(settings.log.level);
    options_.settings.log = settings.log;
    options_.settings.windows.deadline_ms = settings.windows.deadline_ms;
    if (pipeline_) {
        pipeline_->set_deadline(settings.windows.deadline_ms * kNsPerMs);
    }
}

session::SensorSet Daemon::held_kinds() const noexcept {
    session::SensorSet kinds;
    for (const Kind kind : sensor::kKinds) {
        if (held(kind)) {
            kinds.add(kind);
        }
    }
    return kinds;
}

session::StreamOffer Daemon::attach(std::uint64_t session_id, session::SensorSet sensors) {
    session::StreamOffer offer;
    for (const Kind kind : sensor::kKinds) {
        if (sensors.has(kind) && !bank_.has(kind)) {
            throw Error(ErrorCode::SensorUnavailable, bank_.absence_of(kind));
        }
    }
    bool changed = has_ended_;
    for (const Kind kind : sensor::kKinds) {
        if (sensors.has(kind)) {
            changed = holders_[sensor::index_of(kind)]++ == 0 || changed;
            bank_.offer(kind, offer);
        }
    }
    if (changed) {
        try {
            restart_pipeline();
        } catch (...) {
            // The newcomer goes without; whoever streamed before goes on.
            detach(0, sensors);
            throw;
        }
    }
    if (const session::Session* const session = sessions_.find(session_id)) {
        desk_.book().held(session_id, session->peer(), sensors);
    }
    return offer;
}

void Daemon::detach(std::uint64_t session_id, session::SensorSet sensors) noexcept {
    desk_.book().left(session_id, sensors);
    bool changed = false;
    for (const Kind kind : sensor::kKinds) {
        if (sensors.has(kind)) {
            changed = --holders_[sensor::index_of(kind)] == 0 || changed;
        }
    }
    if (changed || !pipeline_) {
        schedule_restart();
    }
}

void Daemon::schedule_restart() noexcept {
    if (restart_scheduled_) {
        return;
    }
    // After the current dispatch: a window may be under delivery right now.
    try {
        restart_scheduled_ = true;
        loop_.defer([this] {
            restart_scheduled_ = false;
            restart_or_retry();
        });
    } catch (const std::exception& error) {
        restart_scheduled_ = false;
        log::error("daemon", std::string("sensors could not be switched off now: ") + error.what());
    }
}

void Daemon::stop_pipeline() noexcept {
    windows_ready_.reset();
    if (pipeline_) {
        const PipelineCounters& counters = pipeline_->counters();
        next_window_id_ += counters.windows_count.load(std::memory_order_relaxed);
        // The one place where pixels are kept: the gate's references, not a copy of the frame.
        log::debug("daemon", "sensors stop after " + std::to_string(counters.windows_count) +
                                 " windows; patch reference bytes: " + std::to_string(counters.gate_reference_bytes));
        pipeline_.reset();
    }
    pipeline_arenas_ = {};
}

void Daemon::check_first_samples() {
    for (const Kind kind : sensor::kKinds) {
        if (bank_.has(kind) && sensor_state(kind).health == sensor::Health::Failed) {
            const std::string text = std::string("the ") + word_of(kind) + " was switched on and delivers nothing";
            log::write(log::Message::SensorSilent, log::Level::Warning, "sensor", text);
            sessions_.notify(session::NoticeKind::SensorLost, text);
        }
    }
}

void Daemon::restart_or_retry() {
    try {
        restart_pipeline();
        if (std::exchange(sensors_lost_, false)) {
            sessions_.notify(session::NoticeKind::SensorRestored, "the sensors are on again");
        }
    } catch (const std::exception& error) {
        log::error("daemon", std::string("the sensors could not be started and are tried again: ") + error.what());
        if (!std::exchange(sensors_lost_, true)) {
            sessions_.notify(session::NoticeKind::SensorLost, error.what());
        }
        restart_again_->arm_at(monotonic_ns() + kNsPerSecond);
    }
}

PipelineOptions Daemon::pipeline_options() const {
    const Settings& settings = options_.settings;
    PipelineOptions options;
    options.arenas = pipeline_arenas_;
    options.imu_on = held(Kind::Imu);
    options.mel_profile = settings.tokens.mel_profile == MelProfileName::WhisperStream
                              ? tokens::MelProfile::WhisperStream
                              : tokens::MelProfile::Kaldi;
    options.patch_gate.false_alarm_rate = settings.tokens.patch_false_alarm;
    options.deadline_ns = settings.windows.deadline_ms * kNsPerMs;
    options.longest_window_ns = settings.windows.max_length_ms * kNsPerMs;
    options.first_window_id = next_window_id_;
    options.fifo_priority = static_cast<int>(settings.threads.pipeline_priority);
    return options;
}

void Daemon::restart_pipeline() {
    stop_pipeline();
    has_ended_ = false;
    const session::SensorSet kinds = held_kinds();
    if (!kinds.empty()) {
        pipeline_arenas_ = bank_.arenas_of(kinds);
        allocations_before_ = hot_path::allocation_count();
        sensing_since_ns_ = monotonic_ns();
        first_samples_due_->arm_at(sensing_since_ns_ + sensor::kFirstSampleNs + 1);
        pipeline_ = std::make_unique<Pipeline>(bank_.sources_of(kinds), pipeline_options());
        windows_ready_ = loop_.add_io(pipeline_->ready_fd(), EPOLLIN, [this](std::uint32_t) { deliver_windows(); });
    }
    bank_.for_each_provider([this](std::uint64_t session_id, sensor::FeedSource& source) {
        if (!source.is_running() && started_providers_.erase(session_id) > 0) {
            if (session::Session* const session = sessions_.find(session_id)) {
                session->stop_provider();
            }
        }
    });
    bank_.sweep();
}

session::StreamStatistics Daemon::statistics() const noexcept {
    session::StreamStatistics statistics;
    if (!pipeline_) {
        return statistics;
    }
    const PipelineCounters& counters = pipeline_->counters();
    statistics.windows_closed_count = counters.windows_count;
    statistics.hot_path_allocations_count = hot_path::allocation_count() - allocations_before_;
    statistics.camera_copied_bytes = counters.camera_copied_bytes;
    statistics.gate_reference_bytes = counters.gate_reference_bytes;
    statistics.window_to_tokens_p50_ns = counters.window_to_tokens.quantile_ns(0.5);
    statistics.window_to_tokens_p99_ns = counters.window_to_tokens.quantile_ns(0.99);
    statistics.window_to_tokens_max_ns = counters.window_to_tokens_max_ns;
    statistics.mel_slices_lost_count = counters.mel_slices_lost_count;
    statistics.imu_rows_lost_count = counters.imu_rows_lost_count;
    statistics.invalid_samples_count = bank_.invalid_samples_count();
    return statistics;
}

void Daemon::deliver_windows() {
    constexpr int kWindowsPerWakeUp = 16;
    if (!windows_ready_) {
        return;
    }
    WindowRecord record;
    bool waits = false;
    for (int i = 0; i < kWindowsPerWakeUp; ++i) {
        waits = !pipeline_->is_live() && sessions_.holds_up(monotonic_ns());
        if (waits || !pipeline_->pop(record)) {
            break;
        }
        deliver(record);
    }
    windows_ready_->set_events(waits ? 0U : std::uint32_t{EPOLLIN});
    if (waits) {
        look_again_->arm_at(monotonic_ns() + kNsPerMs);
    }
    reclaim_slots();
    log::drain();
}

void Daemon::deliver(const WindowRecord& record) {
    const auto block = [this](BlockKind kind, arena::Arena* arena, const BlockRecord& from) {
        return block_of(bank_.arena_id(kind), arena, from);
    };
    session::WindowOut window;
    window.id = record.plan.id;
    window.t0_ns = record.plan.t0_ns;
    window.t1_ns = record.plan.t1_ns;
    window.flags = record.plan.flags;
    window.closed = closed_as(record.plan);
    window.clock_epoch = record.plan.epoch;
    if (record.plan.has_frame) {
        window.frame = block(BlockKind::Frame, pipeline_arenas_.camera, record.frame);
        window.exposure_midpoint_ns = record.plan.t0_ns;
        window.frame_sensor_ns = record.plan.frame.sensor_ns;
        window.frame_sequence = record.plan.frame.sequence;
    }
    window.patches = block(BlockKind::Patch, pipeline_arenas_.patches, record.patches);
    window.mel = block(BlockKind::Mel, pipeline_arenas_.mel, record.mel);
    window.motion = block(BlockKind::Motion, pipeline_arenas_.motion, record.motion);
    for (std::uint32_t i = 0; i < record.sound_count; ++i) {
        window.sounds[i] = {block(BlockKind::Audio, pipeline_arenas_.audio, record.sounds[i].block),
                            record.sounds[i].first_frame_ns};
    }
    window.sound_count = record.sound_count;
    window.lost_upstream_count = record.lost_upstream_count;
    sessions_.deliver(window);
    if (record.plan.last) {
        has_ended_ = true;
        const auto is_damaged = [this](Kind kind) {
            return bank_.has(kind) && bank_.source(kind)->counters(kind).ended_early.load(std::memory_order_relaxed);
        };
        if (std::any_of(sensor::kKinds.begin(), sensor::kKinds.end(), is_damaged)) {
            sessions_.notify(session::NoticeKind::SensorLost, "the recording is damaged and ended before its time");
        } else {
            sessions_.notify(session::NoticeKind::EndOfStream, "the recording is over");
        }
    }
}

void Daemon::reclaim_slots() noexcept {
    if (!pipeline_ || !pipeline_->is_live()) {
        return;
    }
    // The sensor comes first: clients that hold too much lose their oldest windows.
    const auto reclaim = [this](arena::Arena* arena, std::uint32_t lent_count) {
        if (arena != nullptr) {
            const std::uint32_t wanted = std::min(kFreeSlotsMin, arena->slot_count() / 2);
            sessions_.reclaim(*arena, wanted - std::min(wanted, lent_count));
        }
    };
    const auto lent = [this](Kind kind) { return bank_.has(kind) ? bank_.source(kind)->lent_slot_count(kind) : 0; };
    reclaim(pipeline_arenas_.camera, lent(Kind::Camera));
    reclaim(pipeline_arenas_.audio, lent(Kind::Microphone));
    for (arena::Arena* const arena : {pipeline_arenas_.patches, pipeline_arenas_.mel, pipeline_arenas_.motion}) {
        reclaim(arena, 0);
    }
}

}  // namespace perceptd

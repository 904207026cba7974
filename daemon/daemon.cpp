#include "daemon.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.hpp"
#include "sensor/synthetic.hpp"
#include "tokens/packer.hpp"

namespace perceptd {
namespace {

using sensor::Kind;
using session::BlockKind;

// Fewer free slots than this and clients give back their oldest windows.
constexpr std::uint32_t kFreeSlotsMin = 4;
constexpr std::int64_t kFirstSampleNs = 2 * kNsPerSecond;

std::size_t slices_per_window(const Settings& settings) {
    return 2 * settings.windows.max_length_ms / 10 + 16;  // the first window also has its lead
}

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

session::BlockOut block_of(BlockKind kind, arena::Arena* arena, const BlockRecord& record) noexcept {
    session::BlockOut block;
    block.arena_id = static_cast<std::uint32_t>(kind);
    if (arena != nullptr && record.size_bytes > 0) {
        block.lease = arena->adopt(record.slot);
        block.size_bytes = record.size_bytes;
    }
    return block;
}

session::QuotaLimits limits_of(const SessionSettings& settings) {
    session::QuotaLimits limits;
    limits.sessions_total = settings.max_count;
    limits.sessions_per_uid = settings.max_count;
    limits.windows_per_session = settings.max_windows_in_flight;
    limits.windows_per_uid = settings.max_windows_in_flight * settings.max_count;
    return limits;
}

}  // namespace

Daemon::Daemon(EventLoop& loop, session::Authority& authority, DaemonOptions options)
    : loop_(loop),
      options_(std::move(options)),
      quota_(limits_of(options_.settings.sessions)),
      sessions_(loop, quota_, authority, *this),
      restart_again_(loop.add_timer([this] { restart_or_retry(); })),
      first_samples_due_(loop.add_timer([this] { check_first_samples(); })) {
    make_source();
    make_arenas();
    listener_.emplace(loop, options_.channel_path, [this](UniqueFd socket) { sessions_.accept(std::move(socket)); });
}

Daemon::~Daemon() {
    shut_down();
    windows_ready_.reset();
    pipeline_.reset();
    listener_.reset();
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

void Daemon::make_source() {
    const SensorSettings& sensors = options_.settings.sensors;
    sensor::SyntheticOptions synthetic;
    synthetic.fifo_priority = static_cast<int>(options_.settings.threads.capture_priority);
    synthetic.camera.reset();
    synthetic.microphone.reset();
    synthetic.imu.reset();
    if (sensors.camera.source == SensorSource::Synthetic) {
        synthetic.camera = {.width_px = sensors.camera.width_px,
                            .height_px = sensors.camera.height_px,
                            .rate_hz = static_cast<double>(sensors.camera.rate_hz)};
    }
    if (sensors.microphone.source == SensorSource::Synthetic) {
        synthetic.microphone = {.rate_hz = sensors.microphone.rate_hz,
                                .channel_count = sensors.microphone.channel_count};
    }
    if (sensors.imu.source == SensorSource::Synthetic) {
        synthetic.imu = {.rate_hz = static_cast<double>(sensors.imu.rate_hz)};
    }
    if (synthetic.camera || synthetic.microphone || synthetic.imu) {
        source_ = std::make_unique<sensor::SyntheticSource>(synthetic);
    }
}

void Daemon::make_arenas() {
    if (!source_) {
        return;
    }
    arena::HeapChoice choice =
        arena::choose_heap(options_.settings.arena.heaps, arena::Writer::Daemon, options_.device_root);
    for (const std::string& reason : choice.rejected) {
        log::write(log::Message::HeapFallback, log::Level::Info, "arena", "heap passed over: " + reason);
    }
    const auto make = [&](const char* label, std::uint32_t slot_count, std::size_t slot_bytes) {
        auto arena = std::make_unique<arena::Arena>(
            *choice.heap, arena::Arena::Options{label, slot_count, slot_bytes, arena::Writer::Daemon});
        arena->seal();
        return arena;
    };
    const sensor::Offer& offer = source_->offer();
    const ArenaSettings& settings = options_.settings.arena;
    const std::uint32_t token_slots = settings.camera_slot_count * 2;
    if (offer.camera) {
        camera_arena_ = make("camera", settings.camera_slot_count, sensor::camera_slot_bytes(*offer.camera));
        const std::size_t patches = ((offer.camera->width_px + tokens::kPatchPx - 1) / tokens::kPatchPx) *
                                    ((offer.camera->height_px + tokens::kPatchPx - 1) / tokens::kPatchPx);
        patch_arena_ = make("patches", token_slots, tokens::patch_block_bytes(patches));
    }
    if (offer.audio) {
        audio_arena_ = make("audio", settings.audio_slot_count, sensor::audio_slot_bytes(*offer.audio));
        mel_arena_ = make("mel", token_slots, tokens::mel_block_bytes(slices_per_window(options_.settings)));
    }
    if (offer.imu) {
        const auto rows =
            static_cast<std::size_t>(offer.imu->rate_hz * 2 * options_.settings.windows.max_length_ms / 1000) + 64;
        motion_arena_ =
            make("motion", token_slots, tokens::motion_block_bytes(rows, slices_per_window(options_.settings)));
    }
    log::info("arena", "buffers come from " + choice.heap->name());
}

session::StreamOffer Daemon::attach(std::uint64_t, session::SensorSet sensors) {
    session::StreamOffer offer;
    const auto check = [&](Kind kind, bool exists, const char* name) {
        if (sensors.has(kind) && !exists) {
            throw Error(ErrorCode::SensorUnavailable, std::string("no ") + name + " is configured; set /sensors/" +
                                                          name + "/source, see perceptd --print-config");
        }
    };
    check(Kind::Camera, camera_arena_ != nullptr, "camera");
    check(Kind::Microphone, audio_arena_ != nullptr, "microphone");
    check(Kind::Imu, motion_arena_ != nullptr, "imu");
    const auto add = [&](BlockKind kind, const std::unique_ptr<arena::Arena>& arena) {
        offer.arenas.push_back({static_cast<std::uint32_t>(kind), kind, arena.get()});
    };
    bool changed = false;
    for (const Kind kind : {Kind::Camera, Kind::Microphone, Kind::Imu}) {
        if (sensors.has(kind)) {
            changed = holders_[sensor::index_of(kind)]++ == 0 || changed;
        }
    }
    if (sensors.has(Kind::Camera)) {
        offer.camera = source_->offer().camera;
        add(BlockKind::Frame, camera_arena_);
        add(BlockKind::Patch, patch_arena_);
    }
    if (sensors.has(Kind::Microphone)) {
        offer.audio = source_->offer().audio;
        add(BlockKind::Audio, audio_arena_);
        add(BlockKind::Mel, mel_arena_);
    }
    if (sensors.has(Kind::Imu)) {
        offer.imu = source_->offer().imu;
        add(BlockKind::Motion, motion_arena_);
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
    return offer;
}

void Daemon::detach(std::uint64_t, session::SensorSet sensors) noexcept {
    bool changed = false;
    for (const Kind kind : {Kind::Camera, Kind::Microphone, Kind::Imu}) {
        if (sensors.has(kind)) {
            changed = --holders_[sensor::index_of(kind)] == 0 || changed;
        }
    }
    if ((!changed && pipeline_) || restart_scheduled_) {
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

void Daemon::check_first_samples() {
    for (const Kind kind : {Kind::Camera, Kind::Microphone, Kind::Imu}) {
        const std::size_t index = sensor::index_of(kind);
        if (pipeline_ && held(kind) && source_->counters(kind).delivered_count == delivered_before_[index]) {
            constexpr std::array<const char*, sensor::kKindCount> kNames{"camera", "microphone", "imu"};
            const std::string text = std::string("the ") + kNames[index] + " was switched on and delivers nothing";
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

void Daemon::restart_pipeline() {
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
    if (held(Kind::Camera)) {
        pipeline_arenas_.camera = camera_arena_.get();
        pipeline_arenas_.patches = patch_arena_.get();
    }
    if (held(Kind::Microphone)) {
        pipeline_arenas_.audio = audio_arena_.get();
        pipeline_arenas_.mel = mel_arena_.get();
    }
    if (held(Kind::Imu)) {
        pipeline_arenas_.motion = motion_arena_.get();
    }
    if (!held(Kind::Camera) && !held(Kind::Microphone) && !held(Kind::Imu)) {
        return;
    }
    PipelineOptions options;
    options.arenas = pipeline_arenas_;
    options.imu_on = held(Kind::Imu);
    options.mel_profile = options_.settings.tokens.mel_profile == MelProfileName::WhisperStream
                              ? tokens::MelProfile::WhisperStream
                              : tokens::MelProfile::Kaldi;
    options.patch_gate.false_alarm_rate = options_.settings.tokens.patch_false_alarm;
    options.deadline_ns = options_.settings.windows.deadline_ms * kNsPerMs;
    options.longest_window_ns = options_.settings.windows.max_length_ms * kNsPerMs;
    options.first_window_id = next_window_id_;
    options.fifo_priority = static_cast<int>(options_.settings.threads.pipeline_priority);
    for (const Kind kind : {Kind::Camera, Kind::Microphone, Kind::Imu}) {
        delivered_before_[sensor::index_of(kind)] = source_->counters(kind).delivered_count;
    }
    first_samples_due_->arm_at(monotonic_ns() + kFirstSampleNs);
    sensing_since_ns_ = monotonic_ns();
    pipeline_ = std::make_unique<Pipeline>(*source_, options);
    windows_ready_ = loop_.add_io(pipeline_->ready_fd(), EPOLLIN, [this](std::uint32_t) { deliver_windows(); });
}

void Daemon::deliver_windows() {
    constexpr int kWindowsPerWakeUp = 16;
    WindowRecord record;
    for (int i = 0; i < kWindowsPerWakeUp && pipeline_ && pipeline_->pop(record); ++i) {
        session::WindowOut window;
        window.id = record.plan.id;
        window.t0_ns = record.plan.t0_ns;
        window.t1_ns = record.plan.t1_ns;
        window.flags = record.plan.flags;
        window.closed = closed_as(record.plan);
        window.clock_epoch = record.plan.epoch;
        if (record.plan.has_frame) {
            window.frame = block_of(BlockKind::Frame, pipeline_arenas_.camera, record.frame);
            window.exposure_midpoint_ns = record.plan.t0_ns;
            window.frame_sensor_ns = record.plan.frame.sensor_ns;
            window.frame_sequence = record.plan.frame.sequence;
        }
        window.patches = block_of(BlockKind::Patch, pipeline_arenas_.patches, record.patches);
        window.mel = block_of(BlockKind::Mel, pipeline_arenas_.mel, record.mel);
        window.motion = block_of(BlockKind::Motion, pipeline_arenas_.motion, record.motion);
        window.lost_upstream_count = record.lost_upstream_count;
        sessions_.deliver(window);
        if (record.plan.last) {
            sessions_.notify(session::NoticeKind::EndOfStream, source_->offer().origin + " is over");
        }
    }
    if (source_ && source_->offer().is_live) {
        // The sensor comes first: clients that hold too much lose their oldest windows.
        for (arena::Arena* const arena :
             {pipeline_arenas_.camera, pipeline_arenas_.patches, pipeline_arenas_.mel, pipeline_arenas_.motion}) {
            if (arena != nullptr) {
                sessions_.reclaim(*arena, std::min(kFreeSlotsMin, arena->slot_count() / 2));
            }
        }
    }
    log::drain();
}

}  // namespace perceptd

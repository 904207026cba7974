#include "pipeline.hpp"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arena/lease.hpp"
#include "base/clock.hpp"
#include "base/event_fd.hpp"

namespace perceptd {
namespace {

using sensor::Kind;

constexpr std::uint64_t kLongestStream = std::uint64_t{1} << 48;  // samples: centuries

sync::AlignerOptions aligner_options(const sensor::Offer& offer, const PipelineOptions& options) {
    sync::AlignerOptions result;
    result.present = {options.arenas.camera != nullptr, options.arenas.audio != nullptr, options.imu_on};
    result.live = offer.is_live;
    result.deadline_ns = options.deadline_ns;
    result.longest_window_ns = options.longest_window_ns;
    if (offer.camera && offer.camera->rate_hz > 0) {
        result.nominal_period_ns = static_cast<std::int64_t>(1e9 / offer.camera->rate_hz);
    }
    if (offer.audio && offer.audio->rate_hz > 0) {
        // A block arrives when its last frame is in.
        result.delivery_ns[sensor::index_of(Kind::Microphone)] =
            kNsPerSecond * offer.audio->block_frames / offer.audio->rate_hz + sync::kMelHalf_ns;
    }
    return result;
}

sync::ClockModel clock_for(const sensor::Offer& offer, Kind kind) {
    return sync::ClockModel({.kind = offer.stamp_kind[sensor::index_of(kind)]});
}

/// What the sources offer together.
sensor::Offer merged_offer(const std::vector<sensor::Source*>& sources) {
    sensor::Offer result;
    result.is_live = sources.front()->offer().is_live;
    const auto adopt = [&](Kind kind, auto& to, const auto& from, const sensor::Offer& offer) {
        if (from) {
            to = from;
            result.stamp_kind[sensor::index_of(kind)] = offer.stamp_kind[sensor::index_of(kind)];
        }
    };
    for (const sensor::Source* const source : sources) {
        const sensor::Offer& offer = source->offer();
        adopt(Kind::Camera, result.camera, offer.camera, offer);
        adopt(Kind::Microphone, result.audio, offer.audio, offer);
        adopt(Kind::Imu, result.imu, offer.imu, offer);
    }
    return result;
}

}  // namespace

Pipeline::Pipeline(std::vector<sensor::Source*> sources, const PipelineOptions& options)
    : sources_(std::move(sources)),
      offer_(merged_offer(sources_)),
      options_(options),
      live_(offer_.is_live),
      deadline_ns_(options.deadline_ns),
      wake_fd_(make_event()),
      ready_fd_(make_event()),
      clocks_{clock_for(offer_, Kind::Camera), clock_for(offer_, Kind::Microphone), clock_for(offer_, Kind::Imu)},
      aligner_(aligner_options(offer_, options)),
      tokens_(offer_, options_, counters_) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        queues_.push_back(std::make_unique<sensor::SampleQueue>(wake_fd_.borrow()));
    }
    thread_ = std::make_unique<RtThread>(
        RtThreadOptions{.name = "pipeline", .fifo_priority = options_.fifo_priority},
        [this](const std::atomic<bool>& stop) { run(stop); }, [this] { signal_event(wake_fd_.borrow()); });
    try {
        start_sources();
    } catch (...) {
        halt();
        throw;
    }
}

void Pipeline::start_sources() {
    const StreamArenas& arenas = options_.arenas;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const sensor::Offer& offer = sources_[i]->offer();
        const sensor::Sink sink{offer.camera ? arenas.camera : nullptr, offer.audio ? arenas.audio : nullptr,
                                offer.imu && options_.imu_on, queues_[i].get()};
        if (sink.camera_arena != nullptr || sink.audio_arena != nullptr || sink.imu_on) {
            sources_[i]->start(sink);
        }
    }
}

Pipeline::~Pipeline() {
    halt();
}

void Pipeline::halt() noexcept {
    for (sensor::Source* const source : sources_) {
        source->stop();
    }
    thread_.reset();
    release_all();
}

bool Pipeline::pop(WindowRecord& record) noexcept {
    if (windows_.pop(record)) {
        return true;
    }
    clear_event(ready_fd_.borrow());
    // A window may have come between the two calls.
    return windows_.pop(record);
}

void Pipeline::run(const std::atomic<bool>& stop) noexcept {
    while (!stop.load(std::memory_order_acquire)) {
        aligner_.set_deadline(deadline_ns_.load(std::memory_order_relaxed));
        wait(monotonic_ns());
        counters_.heartbeat_count.fetch_add(1, std::memory_order_relaxed);
        take_samples();
        close_windows();
    }
}

void Pipeline::wait(std::int64_t now_ns) noexcept {
    constexpr std::int64_t kLongest_ns = 100 * kNsPerMs;
    std::int64_t wait_ns = kLongest_ns;
    if (live_) {
        wait_ns = std::clamp<std::int64_t>(
            aligner_.next_deadline_ns() == INT64_MAX ? kLongest_ns : aligner_.next_deadline_ns() - now_ns, 0,
            kLongest_ns);
    } else if (!has_room()) {
        // A recording waits for its readers: look again soon instead of holding their slots.
        wait_ns = kNsPerMs;
        const timespec pause{0, wait_ns};
        ::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
        return;
    }
    if (has_samples()) {
        wait_ns = 0;
    }
    pollfd ready{wake_fd_.borrow(), POLLIN, 0};
    const timespec limit{0, wait_ns};
    if (::ppoll(&ready, 1, &limit, nullptr) > 0) {
        clear_event(wake_fd_.borrow());
    }
}

bool Pipeline::has_room() noexcept {
    const StreamArenas& arenas = options_.arenas;
    const auto full = [](arena::Arena* arena) { return arena != nullptr && arena->free_count() == 0; };
    return windows_.size() < windows_.capacity() && !full(arenas.patches) && !full(arenas.mel) && !full(arenas.motion);
}

bool Pipeline::has_samples() const noexcept {
    return std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->size() > 0; });
}

void Pipeline::take_samples() noexcept {
    // Bounded by the pending arrays, so that a recording is never read faster than its windows leave.
    bool has_taken = true;
    while (has_taken) {
        has_taken = false;
        for (const auto& queue : queues_) {
            sensor::Sample sample;
            if (!held_is_set_ && tokens_.has_room() && queue->pop(sample)) {
                take(sample);
                has_taken = true;
            }
        }
    }
}

void Pipeline::take(const sensor::Sample& sample) noexcept {
    if ((sample.flags & sensor::kEnd) != 0) {
        aligner_.end(sample.kind);
        return;
    }
    if ((sample.flags & sensor::kMark) != 0) {
        static_cast<void>(aligner_.advance(sample.kind, sample.hub_ns));
        return;
    }
    switch (sample.kind) {
        case Kind::Camera: take_frame(sample); break;
        case Kind::Microphone: take_sound(sample); break;
        case Kind::Imu: take_motion(sample); break;
    }
}

std::int64_t Pipeline::hub_time(const sensor::Sample& sample) noexcept {
    sync::ClockModel& clock = clocks_[sensor::index_of(sample.kind)];
    const std::uint32_t before = clock.epoch();
    static_cast<void>(clock.add(sample.sensor_ns, sample.hub_ns));
    const std::int64_t hub_ns = stamps_[sensor::index_of(sample.kind)].next(clock.to_hub(sample.sensor_ns));
    if (before != 0 && clock.epoch() != before) {
        static_cast<void>(aligner_.on_epoch(clock.epoch(), hub_ns));
    }
    return hub_ns;
}

void Pipeline::take_frame(const sensor::Sample& sample) noexcept {
    const std::int64_t hub_ns = hub_time(sample);
    const Status status = aligner_.on_frame(hub_ns, sample);
    if (status == Status::Full) {
        held_ = sample;
        held_hub_ns_ = hub_ns;
        held_is_set_ = true;
        return;
    }
    if (status != Status::Ok) {
        options_.arenas.camera->adopt(sample.slot).end();
    }
    static_cast<void>(aligner_.advance(Kind::Camera, hub_ns));
}

void Pipeline::take_sound(const sensor::Sample& sample) noexcept {
    const arena::Lease lease = options_.arenas.audio->adopt(sample.slot);
    const std::span<const std::byte> bytes = lease.bytes();
    percept_audio_block block;
    std::memcpy(&block, bytes.data(), sizeof(block));
    const std::size_t mono_bytes = std::size_t{block.mono_count} * sizeof(std::int16_t);
    if (block.mono_offset_bytes % alignof(std::int16_t) != 0 || block.mono_offset_bytes > bytes.size() ||
        mono_bytes > bytes.size() - block.mono_offset_bytes || block.rate_hz == 0 ||
        block.first_mono >= kLongestStream || block.first_frame >= kLongestStream) {
        return;  // checked by the source already, but a provider can still write to its slots
    }
    const std::int64_t hub_ns = hub_time(sample);
    // A resampler holds samples back: the two signals of a block need not begin at the same instant.
    const double lead_s = static_cast<double>(block.first_mono) / tokens::kMelRateHz -
                          static_cast<double>(block.first_frame) / block.rate_hz;
    if (std::abs(lead_s) > 1) {
        return;
    }
    const std::int64_t mono_ns = hub_ns + std::llround(lead_s * 1e9);
    tokens_.add_sound(
        {.lease = lease,
         .size_bytes = sample.bytes_used,
         .first_ns = hub_ns,
         .end_ns = hub_ns + kNsPerSecond * block.frame_count / block.rate_hz,
         .mono = {reinterpret_cast<const std::int16_t*>(bytes.data() + block.mono_offset_bytes), block.mono_count},
         .first_mono = block.first_mono,
         .mono_ns = mono_ns},
        aligner_);
    static_cast<void>(
        aligner_.advance(Kind::Microphone, mono_ns + kNsPerSecond * block.mono_count / tokens::kMelRateHz));
}

void Pipeline::take_motion(const sensor::Sample& sample) noexcept {
    percept_imu_row row{};
    row.time_ns = hub_time(sample);
    row.sensor_ns = sample.sensor_ns;
    row.row_index = sample.sequence;
    row.flags = sample.imu_flags;
    std::copy(sample.accel_mps2.begin(), sample.accel_mps2.end(), row.accel_mps2);
    std::copy(sample.gyro_radps.begin(), sample.gyro_radps.end(), row.gyro_radps);
    if (aligner_.admit(Kind::Imu, row.time_ns) == Status::Late) {
        counters_.imu_rows_lost_count.fetch_add(1, std::memory_order_relaxed);
    } else {
        tokens_.add_row(row);
    }
    static_cast<void>(aligner_.advance(Kind::Imu, row.time_ns));
}

void Pipeline::close_windows() noexcept {
    sync::WindowPlan plan;
    while (live_ || has_room()) {
        if (held_is_set_) {
            const Status status = aligner_.on_frame(held_hub_ns_, held_);
            held_is_set_ = status == Status::Full;
            if (status != Status::Ok && status != Status::Full) {
                options_.arenas.camera->adopt(held_.slot).end();
            }
        }
        if (!held_is_set_ && held_hub_ns_ != 0) {
            static_cast<void>(aligner_.advance(Kind::Camera, held_hub_ns_));
            held_hub_ns_ = 0;
        }
        if (aligner_.poll(monotonic_ns(), plan) != Status::Ok) {
            return;
        }
        const std::int64_t closed_at_ns = monotonic_ns();
        plan.id += options_.first_window_id;
        WindowRecord record;
        record.plan = plan;
        if (plan.has_frame) {
            record.frame = {plan.frame.slot, plan.frame.bytes_used};
        }
        tokens_.fill(plan, record);
        record.tokens_took_ns = monotonic_ns() - closed_at_ns;
        counters_.window_to_tokens.record(record.tokens_took_ns);
        if (record.tokens_took_ns > counters_.window_to_tokens_max_ns.load(std::memory_order_relaxed)) {
            counters_.window_to_tokens_max_ns.store(record.tokens_took_ns, std::memory_order_relaxed);
        }
        counters_.windows_count.fetch_add(1, std::memory_order_relaxed);
        record.lost_upstream_count = counters_.windows_lost_count.load(std::memory_order_relaxed);
        if (!windows_.push(record)) {
            counters_.windows_lost_count.fetch_add(1, std::memory_order_relaxed);
            release(record, options_.arenas);
        }
        signal_event(ready_fd_.borrow());
    }
}

void Pipeline::release_all() noexcept {
    sensor::Sample sample;
    const auto end = [this](const sensor::Sample& ended) {
        if ((ended.flags & (sensor::kEnd | sensor::kMark)) == 0 && ended.kind != Kind::Imu) {
            arena::Arena* const arena = ended.kind == Kind::Camera ? options_.arenas.camera : options_.arenas.audio;
            arena->adopt(ended.slot).end();
        }
    };
    for (const auto& queue : queues_) {
        while (queue->pop(sample)) {
            end(sample);
        }
    }
    while (aligner_.drain_frame(sample) == Status::Ok) {
        end(sample);
    }
    if (held_is_set_) {
        end(held_);
    }
    WindowRecord record;
    while (windows_.pop(record)) {
        release(record, options_.arenas);
    }
}

}  // namespace perceptd

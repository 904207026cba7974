#include "sensor/synthetic.hpp"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "arena/cpu_access.hpp"
#include "arena/lease.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/event_fd.hpp"
#include "percept_layout.h"
#include "sensor/counter_rng.hpp"

namespace perceptd::sensor {
namespace {

constexpr std::size_t kAudioAlignBytes = 64;
constexpr std::int64_t kLeadNs = 5 * kNsPerMs;         // from start() to the scene's beginning, in real time
constexpr std::int64_t kLongestNapNs = 20 * kNsPerMs;  // bounds how long stop() waits
constexpr std::int64_t kQueueNapNs = 200 * kNsPerUs;
constexpr int kSlotPollMs = 20;
constexpr std::uint64_t kJitterStream = 100;  // plus the kind: apart from the scene's streams
constexpr double kMaxErrorPpm = 10'000;

constexpr std::size_t aligned(std::size_t bytes) noexcept {
    return (bytes + kAudioAlignBytes - 1) / kAudioAlignBytes * kAudioAlignBytes;
}

/// The first 16 kHz sample at or after original frame `frame`: both signals start at the same instant.
constexpr std::uint64_t first_mono_at(std::uint64_t frame, std::uint32_t rate_hz) noexcept {
    return (frame * kMonoRateHz + rate_hz - 1) / rate_hz;
}

void sleep_until(std::int64_t at_ns) noexcept {
    const timespec at{.tv_sec = static_cast<time_t>(at_ns / kNsPerSecond),
                      .tv_nsec = static_cast<long>(at_ns % kNsPerSecond)};
    ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

/// False when stopped first.
bool sleep_until(std::int64_t at_ns, const std::atomic<bool>& stop) noexcept {
    for (std::int64_t now_ns = monotonic_ns(); now_ns < at_ns; now_ns = monotonic_ns()) {
        if (stop.load(std::memory_order_acquire)) {
            return false;
        }
        sleep_until(std::min(at_ns, now_ns + kLongestNapNs));
    }
    return !stop.load(std::memory_order_acquire);
}

void demand(bool is_met, const char* reason) {
    if (!is_met) {
        throw Error(ErrorCode::InvalidArgument, std::string("synthetic source: ") + reason);
    }
}

void check(const ClockModel& clock) {
    demand(std::abs(clock.error_ppm) <= kMaxErrorPpm, "clock error must be within 10000 ppm");
    demand(clock.jitter_ns >= 0 && clock.jitter_ns <= kNsPerSecond, "jitter must be within 0 to 1 s");
    demand(clock.kind != StampKind::Identity || (clock.error_ppm == 0 && clock.jitter_ns == 0),
           "identity stamps allow no clock error and no jitter");
}

SceneOptions scene_options_of(const SyntheticOptions& options) {
    SceneOptions scene{.seed = options.seed, .is_walking = options.is_walking};
    if (options.camera) {
        scene.width_px = options.camera->width_px;
        scene.height_px = options.camera->height_px;
    }
    return scene;
}

}  // namespace

std::size_t camera_slot_bytes(const CameraFormat& format) noexcept {
    return std::size_t{format.stride_bytes} * format.height_px * 3 / 2;
}

std::size_t audio_slot_bytes(const AudioFormat& format) noexcept {
    const std::size_t original_bytes = std::size_t{format.block_frames} * format.channel_count * sizeof(std::int16_t);
    const std::size_t mono_count = first_mono_at(format.block_frames, format.rate_hz) + 1;
    return aligned(aligned(sizeof(percept_audio_block)) + original_bytes) + mono_count * sizeof(std::int16_t);
}

SyntheticSource::SyntheticSource(const SyntheticOptions& options)
    : options_(options), scene_(scene_options_of(options)) {
    demand(options.duration_ns >= 0, "duration must not be negative");
    demand(options.hub_start_ns == 0 || (options.pace == Pace::Fast && options.hub_start_ns > 0),
           "a chosen hub start needs the fast pace");
    offer_.origin = "synthetic";
    offer_.is_live = options.pace == Pace::Realtime;
    offer_.stamp_kind.fill(StampKind::Latched);
    const auto adopt_clock = [this](Kind kind, const ClockModel& clock) {
        check(clock);
        offer_.stamp_kind[index_of(kind)] = clock.kind;
        streams_[index_of(kind)].clock = clock;
    };
    if (options.camera) {
        demand(options.camera->rate_hz >= 0.1 && options.camera->rate_hz <= 1000, "camera rate must be 0.1 to 1000 Hz");
        adopt_clock(Kind::Camera, options.camera->clock);
        const std::uint32_t stride_bytes = (options.camera->width_px + 15) / 16 * 16;
        offer_.camera =
            CameraFormat{options.camera->width_px, options.camera->height_px, stride_bytes, options.camera->rate_hz};
    }
    if (const auto& microphone = options.microphone) {
        demand(microphone->rate_hz >= kMonoRateHz && microphone->rate_hz <= 192'000,
               "sound rate must be 16 to 192 kHz");
        demand(microphone->channel_count >= 1 && microphone->channel_count <= 8, "sound has 1 to 8 channels");
        demand(microphone->block_ms >= 1 && microphone->block_ms <= 1000, "sound blocks last 1 to 1000 ms");
        adopt_clock(Kind::Microphone, microphone->clock);
        offer_.audio = AudioFormat{microphone->rate_hz, microphone->channel_count,
                                   microphone->rate_hz * microphone->block_ms / 1000};
    }
    if (options.imu) {
        demand(options.imu->rate_hz >= 0.1 && options.imu->rate_hz <= 10'000, "IMU rate must be 0.1 to 10000 Hz");
        adopt_clock(Kind::Imu, options.imu->clock);
        offer_.imu = ImuFormat{options.imu->rate_hz};
    }
    stop_fd_ = make_event();
}

SyntheticSource::~SyntheticSource() {
    stop();
}

void SyntheticSource::start(const Sink& sink) {
    stop();
    const auto refuse = [](const char* reason) {
        throw Error(ErrorCode::SensorUnavailable, std::string("synthetic source: ") + reason);
    };
    if (sink.queue == nullptr) {
        refuse("a sample queue is needed");
    }
    if ((sink.camera_arena != nullptr && !offer_.camera) || (sink.audio_arena != nullptr && !offer_.audio) ||
        (sink.imu_on && !offer_.imu)) {
        refuse("a sensor was asked for that this source does not offer; look at offer() first");
    }
    if (sink.camera_arena != nullptr && sink.camera_arena->slot_bytes() < camera_slot_bytes(*offer_.camera)) {
        refuse("camera slots are smaller than camera_slot_bytes()");
    }
    if (sink.audio_arena != nullptr && sink.audio_arena->slot_bytes() < audio_slot_bytes(*offer_.audio)) {
        refuse("audio slots are smaller than audio_slot_bytes()");
    }
    sink_ = sink;
    clear_event(stop_fd_.borrow());
    if (options_.hub_start_ns != 0) {
        hub_start_ns_ = options_.hub_start_ns;
    } else {
        hub_start_ns_ = monotonic_ns() + (options_.pace == Pace::Realtime ? kLeadNs : 0);
    }
    const std::array<bool, kKindCount> is_on{sink.camera_arena != nullptr, sink.audio_arena != nullptr, sink.imu_on};
    for (std::size_t i = 0; i < kKindCount; ++i) {
        streams_[i] = Stream{.kind = static_cast<Kind>(i + 1), .clock = streams_[i].clock, .is_on = is_on[i]};
        plan(streams_[i]);
        counters_[i].reset();
    }
    thread_ = std::make_unique<RtThread>(
        RtThreadOptions{
            .name = "percept-synth", .fifo_priority = options_.fifo_priority, .cpu_index = options_.cpu_index},
        [this](const std::atomic<bool>& stop_flag) { capture(stop_flag); },
        [this] { signal_event(stop_fd_.borrow()); });
}

void SyntheticSource::stop() noexcept {
    thread_.reset();
}

std::int64_t SyntheticSource::sensor_elapsed_ns(const Stream& stream, std::uint64_t sequence) const noexcept {
    const auto index = static_cast<long double>(sequence);
    switch (stream.kind) {
        case Kind::Camera: return std::llroundl(index * kNsPerSecond / offer_.camera->rate_hz);
        case Kind::Microphone:
            return std::llroundl(index * offer_.audio->block_frames * kNsPerSecond / offer_.audio->rate_hz);
        case Kind::Imu: return std::llroundl(index * kNsPerSecond / offer_.imu->rate_hz);
    }
    return 0;
}

std::int64_t SyntheticSource::truth_ns(Kind kind, std::int64_t sensor_ns) const noexcept {
    const ClockModel& clock = streams_[index_of(kind)].clock;
    return std::llroundl(static_cast<long double>(sensor_ns - clock.origin_ns) / (1.0L + clock.error_ppm * 1e-6L));
}

void SyntheticSource::plan(Stream& stream) noexcept {
    if (!stream.is_on) {
        stream.is_ended = true;
        return;
    }
    const ClockModel& clock = stream.clock;
    const auto truth_at = [&](std::uint64_t sequence) {
        return truth_ns(stream.kind, clock.origin_ns + sensor_elapsed_ns(stream, sequence));
    };
    stream.truth_ns = truth_at(stream.sequence);
    // A block exists when its last sample does; a frame and a row when they are taken.
    const std::int64_t complete_ns =
        stream.kind == Kind::Microphone ? truth_at(stream.sequence + 1) : stream.truth_ns + 1;
    stream.is_ended = options_.duration_ns != 0 && complete_ns > options_.duration_ns;
    double jitter_ns = 0;
    if (clock.jitter_ns != 0) {
        const std::uint64_t key = kJitterStream + index_of(stream.kind);
        const double unit = clock.kind == StampKind::OneWay ? random_exponential(options_.seed, key, stream.sequence)
                                                            : random_normal(options_.seed, key, stream.sequence);
        jitter_ns = unit * static_cast<double>(clock.jitter_ns);
    }
    stream.hub_ns = hub_start_ns_ + stream.truth_ns + std::llround(jitter_ns);
    stream.due_ns = std::max(hub_start_ns_ + complete_ns, stream.hub_ns);  // no stamp lies in its reader's future
}

SyntheticSource::Stream* SyntheticSource::earliest() noexcept {
    Stream* first = nullptr;
    for (Stream& stream : streams_) {
        if (stream.is_on && !stream.is_ended && (first == nullptr || stream.due_ns < first->due_ns)) {
            first = &stream;
        }
    }
    return first;
}

void SyntheticSource::capture(const std::atomic<bool>& stop) noexcept {
    while (Stream* stream = earliest()) {
        if (options_.pace == Pace::Realtime ? !sleep_until(stream->due_ns, stop)
                                            : stop.load(std::memory_order_acquire)) {
            return;
        }
        deliver(*stream, stop);
        ++stream->sequence;
        plan(*stream);
    }
    for (const Stream& stream : streams_) {
        const Sample end{.kind = stream.kind,
                         .flags = kEnd,
                         .hub_ns = hub_start_ns_ + options_.duration_ns,
                         .sequence = stream.sequence};
        if (stream.is_on && !push(end, true, stop)) {
            return;
        }
    }
}

void SyntheticSource::deliver(Stream& stream, const std::atomic<bool>& stop) noexcept {
    StreamCounters& counters = counters_[index_of(stream.kind)];
    Sample sample{.kind = stream.kind, .flags = stream.has_gap ? kGap : 0U};
    sample.sensor_ns = stream.clock.origin_ns + sensor_elapsed_ns(stream, stream.sequence);
    sample.hub_ns = stream.hub_ns;
    sample.sequence = stream.sequence;
    arena::Lease lease;
    switch (fill(stream, sample, lease, stop)) {
        case Outcome::Filled: break;
        case Outcome::Stopped: return;
        case Outcome::NoSlot:
            counters.dropped_no_slot_count.fetch_add(1, std::memory_order_relaxed);
            stream.has_gap = true;
            return;
        case Outcome::Failed:
            counters.invalid_count.fetch_add(1, std::memory_order_relaxed);
            stream.has_gap = true;
            return;
    }
    if (!push(sample, options_.pace == Pace::Fast, stop)) {
        if (!stop.load(std::memory_order_acquire)) {
            counters.dropped_queue_full_count.fetch_add(1, std::memory_order_relaxed);
        }
        stream.has_gap = true;
        return;  // the lease ends here and frees the slot
    }
    if (lease) {
        (void)lease.detach();  // the count now travels with the sample
    }
    if (stream.has_gap) {
        counters.gap_count.fetch_add(1, std::memory_order_relaxed);
        stream.has_gap = false;
    }
    counters.delivered_count.fetch_add(1, std::memory_order_relaxed);
    counters.last_at_ns.store(sample.hub_ns, std::memory_order_relaxed);
}

SyntheticSource::Outcome SyntheticSource::fill(const Stream& stream, Sample& sample, arena::Lease& lease,
                                               const std::atomic<bool>& stop) noexcept {
    if (stream.kind == Kind::Imu) {
        scene_.measure_imu(stream.truth_ns, stream.sequence, sample);
        sample.imu_flags = PERCEPT_IMU_ACCEL | PERCEPT_IMU_GYRO;
        return Outcome::Filled;
    }
    arena::Arena& arena = stream.kind == Kind::Camera ? *sink_.camera_arena : *sink_.audio_arena;
    lease = options_.pace == Pace::Fast ? wait_for_slot(arena, stop) : arena.acquire();
    if (!lease) {
        return options_.pace == Pace::Fast ? Outcome::Stopped : Outcome::NoSlot;
    }
    try {
        const arena::CpuAccess access(arena.shared_fd(), arena::Touch::Write);
        if (stream.kind == Kind::Camera) {
            scene_.render_frame(stream.truth_ns, offer_.camera->stride_bytes, lease.bytes());
            sample.bytes_used = static_cast<std::uint32_t>(camera_slot_bytes(*offer_.camera));
        } else {
            sample.bytes_used = write_audio(stream, lease.bytes());
        }
    } catch (const std::exception&) {  // the kernel refused the CPU's access: the slot goes back unread
        lease.end();
        return Outcome::Failed;
    }
    lease.publish();
    sample.slot = lease.ref();
    return Outcome::Filled;
}

std::uint32_t SyntheticSource::write_audio(const Stream& stream, std::span<std::byte> slot) const noexcept {
    const AudioFormat& format = *offer_.audio;
    const double sensor_rate = 1.0 + stream.clock.error_ppm * 1e-6;
    percept_audio_block block{};
    block.rate_hz = format.rate_hz;
    block.channel_count = format.channel_count;
    block.frame_count = format.block_frames;
    block.first_frame = stream.sequence * format.block_frames;
    block.first_mono = first_mono_at(block.first_frame, format.rate_hz);
    block.mono_count = static_cast<std::uint32_t>(first_mono_at(block.first_frame + block.frame_count, format.rate_hz) -
                                                  block.first_mono);
    const std::size_t original_bytes = std::size_t{block.frame_count} * block.channel_count * sizeof(std::int16_t);
    block.original_offset_bytes = static_cast<std::uint32_t>(aligned(sizeof(block)));
    block.mono_offset_bytes = static_cast<std::uint32_t>(aligned(block.original_offset_bytes + original_bytes));
    // Both signals are sampled by the device's clock, so their spacing in truth time carries its error.
    const auto span_of = [&](std::uint64_t first, std::uint32_t rate_hz, std::uint32_t count,
                             std::uint32_t channel_count) {
        const double period_ns = kNsPerSecond / (rate_hz * sensor_rate);
        return SoundSpan{.first_ns = static_cast<double>(first) * period_ns,
                         .period_ns = period_ns,
                         .first_index = first,
                         .count = count,
                         .channel_count = channel_count};
    };
    const SoundSpan original = span_of(block.first_frame, format.rate_hz, block.frame_count, block.channel_count);
    SoundSpan mono = span_of(block.first_mono, kMonoRateHz, block.mono_count, 1);
    mono.is_mono_mix = true;
    std::memcpy(slot.data(), &block, sizeof(block));
    scene_.render_sound(original, reinterpret_cast<std::int16_t*>(slot.data() + block.original_offset_bytes));
    scene_.render_sound(mono, reinterpret_cast<std::int16_t*>(slot.data() + block.mono_offset_bytes));
    return block.mono_offset_bytes + block.mono_count * static_cast<std::uint32_t>(sizeof(std::int16_t));
}

arena::Lease SyntheticSource::wait_for_slot(arena::Arena& arena, const std::atomic<bool>& stop) const noexcept {
    while (!stop.load(std::memory_order_acquire)) {
        if (arena::Lease lease = arena.acquire()) {
            return lease;
        }
        arena.announce_waiting();
        if (arena::Lease lease = arena.acquire()) {  // freed between the first look and the announcement
            return lease;
        }
        std::array<pollfd, 2> fds{{{arena.release_fd(), POLLIN, 0}, {stop_fd_.borrow(), POLLIN, 0}}};
        if (::poll(fds.data(), fds.size(), kSlotPollMs) > 0 && (fds[0].revents & POLLIN) != 0) {
            std::uint64_t count = 0;
            [[maybe_unused]] const ssize_t drained = ::read(arena.release_fd(), &count, sizeof(count));
        }
    }
    return {};
}

bool SyntheticSource::push(const Sample& sample, bool must_wait, const std::atomic<bool>& stop) noexcept {
    while (sink_.queue->push(sample) != Status::Ok) {
        if (!must_wait || stop.load(std::memory_order_acquire)) {
            return false;
        }
        sleep_until(monotonic_ns() + kQueueNapNs);
    }
    return true;
}

}  // namespace perceptd::sensor

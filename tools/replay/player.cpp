#include "player.hpp"

#include <percept_layout.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace perceptd::replay {
namespace {

constexpr std::uint32_t block_frames = 1024;
constexpr std::uint32_t stride_alignment = 16;
constexpr std::int64_t mark_every_ns = 100'000'000;
constexpr std::int64_t report_every_ns = 1'000'000'000;
constexpr std::size_t sound_alignment = 64;

std::uint32_t stride_of(const CameraFormat& format) {
    return (format.width_px + stride_alignment - 1) / stride_alignment * stride_alignment;
}

/// More than the 16 kHz samples of a full block, for what a resampler held back.
std::size_t mono_limit(std::uint32_t rate_hz) {
    return std::size_t{block_frames} * mono_rate_hz / rate_hz + 1;
}

std::int64_t wall_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

v1::Provide offer_of(const Recording& recording, const std::string& origin) {
    v1::Provide offer;
    offer.set_origin(origin.substr(0, 120));
    offer.set_is_live(false);
    for (const auto set :
         {&v1::Provide::set_camera_stamps, &v1::Provide::set_audio_stamps, &v1::Provide::set_imu_stamps}) {
        (offer.*set)(v1::STAMP_KIND_IDENTITY);
    }
    if (const auto camera = recording.camera()) {
        offer.mutable_camera()->set_width_px(camera->width_px);
        offer.mutable_camera()->set_height_px(camera->height_px);
        offer.mutable_camera()->set_stride_bytes(stride_of(*camera));
        offer.mutable_camera()->set_rate_hz(camera->rate_hz > 0 ? camera->rate_hz : 30);
    }
    if (const auto audio = recording.audio()) {
        offer.mutable_audio()->set_rate_hz(audio->rate_hz);
        offer.mutable_audio()->set_channel_count(audio->channel_count);
        offer.mutable_audio()->set_block_frames(block_frames);
    }
    if (const auto imu = recording.imu()) {
        offer.mutable_imu()->set_rate_hz(imu->rate_hz > 0 ? imu->rate_hz : 200);
    }
    return offer;
}

Player::Player(SensorProvider& provider, const ProviderRun& run, PlayerOptions options)
    : provider_(provider), run_(run), options_(options), reported_at_ns_(wall_ns()) {}

Player::Outcome Player::play(const Open& open) {
    bool is_first = true;
    while (true) {
        try {
            const auto recording = open();
            const std::int64_t before_ns = newest_ns_;
            if (!play_once(*recording)) {
                return Outcome::Stopped;
            }
            if (!options_.loops || (!is_first && newest_ns_ == before_ns)) {
                break;
            }
            is_first = false;
            pass_start_ns_ = covered_ns_;
            pass_frame_ = next_frame_;
            pass_mono_ = next_mono_;
        } catch (const RecordingError& error) {
            char place[32];
            std::snprintf(place, sizeof(place), "%.3f s: ", double(newest_ns_ - pass_start_ns_) * 1e-9);
            fault_ = place + std::string(error.what());
            end_streams(PERCEPT_FEED_END | PERCEPT_FEED_DAMAGED);
            return Outcome::Damaged;
        }
    }
    end_streams(PERCEPT_FEED_END);
    return Outcome::Ended;
}

bool Player::play_once(Recording& recording) {
    while (const std::optional<Event> event = recording.next()) {
        if (!play_event(recording, *event)) {
            return false;
        }
        report();
    }
    return true;
}

std::int64_t Player::length_of(const Recording& recording, const Event& event) {
    const auto period_ns = [](double rate_hz) { return static_cast<std::int64_t>(rate_hz > 0 ? 1e9 / rate_hz : 1e6); };
    if (const auto* block = std::get_if<AudioBlock>(&event)) {
        const AudioFormat format = recording.audio().value();
        const std::size_t frame_count = block->original.size() / format.channel_count;
        return static_cast<std::int64_t>(double(frame_count) * 1e9 / format.rate_hz);
    }
    return period_ns(std::holds_alternative<Frame>(event) ? recording.camera().value().rate_hz
                                                          : recording.imu().value().rate_hz);
}

bool Player::play_event(Recording& recording, const Event& event) {
    const std::int64_t time_ns = pass_start_ns_ + std::visit([](const auto& any) { return any.time_ns; }, event);
    const std::uint32_t stream = std::holds_alternative<Frame>(event)        ? PERCEPT_STREAM_CAMERA
                                 : std::holds_alternative<AudioBlock>(event) ? PERCEPT_STREAM_AUDIO
                                                                             : PERCEPT_STREAM_IMU;
    if (!provider_.keeps_running(options_.is_realtime ? run_.hub_start_ns + time_ns : 0)) {
        return false;
    }
    newest_ns_ = std::max(newest_ns_, time_ns);
    covered_ns_ = std::max(covered_ns_, time_ns + length_of(recording, event));
    if (!mark_others(stream, time_ns)) {
        return false;
    }
    if (!run_.is_on[stream - 1]) {
        return true;
    }
    if (const auto* frame = std::get_if<Frame>(&event)) {
        return play_frame(recording, *frame);
    }
    if (const auto* block = std::get_if<AudioBlock>(&event)) {
        return play_sound(recording, *block);
    }
    return play_motion(std::get<ImuRow>(event));
}

percept_feed_record Player::record_at(std::uint32_t stream, std::int64_t time_ns) {
    Stream& state = streams_[stream - 1];
    state.last_ns = std::max(time_ns, state.last_ns + 1);  // two events of one instant stay in order
    state.marked_ns = state.last_ns;
    percept_feed_record record{};
    record.stream = stream;
    record.sensor_ns = state.last_ns;
    record.hub_ns = run_.hub_start_ns + state.last_ns;
    record.sequence = state.count++;
    return record;
}

bool Player::play_frame(Recording& recording, const Frame& frame) {
    const auto slot_index = provider_.take_slot(PERCEPT_STREAM_CAMERA);
    if (!slot_index) {
        return false;
    }
    const CameraFormat format = recording.camera().value();
    const std::size_t stride_bytes = stride_of(format);
    const std::span<std::byte> slot = provider_.slot(PERCEPT_STREAM_CAMERA, *slot_index);
    recording.write_frame({reinterpret_cast<std::uint8_t*>(slot.data()), slot.size()}, stride_bytes);
    percept_feed_record record = record_at(PERCEPT_STREAM_CAMERA, pass_start_ns_ + frame.time_ns);
    record.slot_index = *slot_index;
    record.bytes_used = static_cast<std::uint32_t>(frame_bytes(format, stride_bytes));
    return provider_.submit(record);
}

bool Player::play_sound(const Recording& recording, const AudioBlock& block) {
    const AudioFormat format = recording.audio().value();
    const std::size_t channels = format.channel_count;
    const std::size_t frame_count = block.original.size() / channels;
    const std::size_t mono_max = mono_limit(format.rate_hz);
    // Pieces that fit a slot; both signals are cut alike.
    const std::size_t pieces = std::max<std::size_t>(
        {1, (frame_count + block_frames - 1) / block_frames, (block.mono.size() + mono_max - 1) / mono_max});
    for (std::size_t piece = 0; piece < pieces; ++piece) {
        const auto cut = [&](std::size_t count) {
            return std::pair(count * piece / pieces, count * (piece + 1) / pieces);
        };
        const auto [frame_from, frame_to] = cut(frame_count);
        const auto [mono_from, mono_to] = cut(block.mono.size());
        const auto slot_index = provider_.take_slot(PERCEPT_STREAM_AUDIO);
        if (!slot_index) {
            return false;
        }
        percept_audio_block head{};
        head.rate_hz = format.rate_hz;
        head.channel_count = format.channel_count;
        head.frame_count = static_cast<std::uint32_t>(frame_to - frame_from);
        head.mono_count = static_cast<std::uint32_t>(mono_to - mono_from);
        head.first_frame = pass_frame_ + block.first_frame + frame_from;
        head.first_mono = pass_mono_ + block.first_mono + mono_from;
        head.original_offset_bytes = sound_alignment;
        const std::size_t original_bytes = head.frame_count * channels * sizeof(std::int16_t);
        head.mono_offset_bytes = static_cast<std::uint32_t>(sound_alignment + (original_bytes + sound_alignment - 1) /
                                                                                  sound_alignment * sound_alignment);
        std::byte* const slot = provider_.slot(PERCEPT_STREAM_AUDIO, *slot_index).data();
        std::memcpy(slot, &head, sizeof(head));
        std::memcpy(slot + head.original_offset_bytes, block.original.data() + frame_from * channels, original_bytes);
        std::memcpy(slot + head.mono_offset_bytes, block.mono.data() + mono_from,
                    head.mono_count * sizeof(std::int16_t));
        const auto offset_ns = static_cast<std::int64_t>(double(frame_from) * 1e9 / format.rate_hz);
        percept_feed_record record = record_at(PERCEPT_STREAM_AUDIO, pass_start_ns_ + block.time_ns + offset_ns);
        record.slot_index = *slot_index;
        record.bytes_used = head.mono_offset_bytes + head.mono_count * static_cast<std::uint32_t>(sizeof(std::int16_t));
        next_frame_ = head.first_frame + head.frame_count;
        next_mono_ = head.first_mono + head.mono_count;
        if (!provider_.submit(record)) {
            return false;
        }
    }
    return true;
}

bool Player::play_motion(const ImuRow& row) {
    percept_feed_record record = record_at(PERCEPT_STREAM_IMU, pass_start_ns_ + row.time_ns);
    record.imu_flags = row.has_accel ? std::uint32_t{PERCEPT_IMU_ACCEL} : 0U;
    record.imu_flags |= row.has_gyro ? std::uint32_t{PERCEPT_IMU_GYRO} : 0U;
    std::copy_n(row.accel_mps2, 3, record.accel_mps2);
    std::copy_n(row.gyro_radps, 3, record.gyro_radps);
    return provider_.submit(record);
}

bool Player::mark_others(std::uint32_t stream, std::int64_t time_ns) {
    // A stream that pauses must not hold up the windows of the others: events come in the order of time.
    for (std::uint32_t other = PERCEPT_STREAM_CAMERA; other <= PERCEPT_STREAM_IMU; ++other) {
        Stream& state = streams_[other - 1];
        if (other != stream && run_.is_on[other - 1] && time_ns - state.marked_ns >= mark_every_ns) {
            state.marked_ns = time_ns;
            percept_feed_record mark{};
            mark.stream = other;
            mark.flags = PERCEPT_FEED_MARK;
            mark.hub_ns = run_.hub_start_ns + time_ns;
            if (!provider_.submit(mark)) {
                return false;
            }
        }
    }
    return true;
}

void Player::end_streams(std::uint32_t flags) {
    for (std::uint32_t stream = PERCEPT_STREAM_CAMERA; stream <= PERCEPT_STREAM_IMU; ++stream) {
        if (run_.is_on[stream - 1]) {
            percept_feed_record end{};
            end.stream = stream;
            end.flags = flags;
            end.hub_ns = run_.hub_start_ns + std::max(newest_ns_, streams_[stream - 1].last_ns);
            static_cast<void>(provider_.submit(end));
        }
    }
}

std::string Player::progress() const {
    char text[128];
    std::snprintf(text, sizeof(text), "%.1f s, %llu frames, %llu sound blocks, %llu motion samples",
                  double(newest_ns_) * 1e-9, static_cast<unsigned long long>(streams_[0].count),
                  static_cast<unsigned long long>(streams_[1].count),
                  static_cast<unsigned long long>(streams_[2].count));
    return text;
}

void Player::report() {
    if (wall_ns() - reported_at_ns_ >= report_every_ns) {
        reported_at_ns_ = wall_ns();
        std::cerr << "perceptd-replay: " << progress() << "\n";
    }
}

}  // namespace perceptd::replay

#include "session/wire.hpp"

#include <perceptd/v1/channel.pb.h>

#include <string>

#include "session/answer_wire.hpp"

namespace perceptd::session {
namespace {

static_assert(static_cast<int>(ErrorCode::InvalidConfiguration) == v1::ERROR_CODE_INVALID_CONFIGURATION);
static_assert(static_cast<int>(ErrorCode::ProtocolViolation) == v1::ERROR_CODE_PROTOCOL_VIOLATION);
static_assert(static_cast<int>(BlockKind::Motion) == v1::BLOCK_KIND_MOTION);
static_assert(static_cast<int>(WindowClosed::End) == v1::CLOSE_REASON_END);
static_assert(static_cast<int>(NoticeKind::SessionEnd) == v1::NOTICE_KIND_SESSION_END);
static_assert(static_cast<int>(sensor::Kind::Imu) == v1::SENSOR_IMU);

void fill(v1::DropCounters& out, const Counters& counters) {
    out.set_lost_unread_count(counters.lost_unread_count);
    out.set_lost_unreleased_count(counters.lost_unreleased_count);
    out.set_revoked_count(counters.revoked_count);
    out.set_lost_upstream_count(counters.lost_upstream_count);
}

void fill(v1::BlockRef& out, const BlockOut& block) {
    out.set_arena_id(block.arena_id);
    out.set_slot_index(block.lease.ref().slot_index);
    out.set_generation(block.lease.ref().generation);
    out.set_offset_bytes(block.offset_bytes);
    out.set_size_bytes(block.size_bytes);
}

Request broken(const char* fault) {
    Request request;
    request.fault = fault;
    return request;
}

/// False for a value that this version does not know.
bool add_sensor(SensorSet& set, int value) {
    if (value < v1::SENSOR_CAMERA || value > v1::SENSOR_IMU) {
        return false;
    }
    set.add(static_cast<sensor::Kind>(value));
    return true;
}

sensor::StampKind stamp_kind_of(v1::StampKind kind) {
    switch (kind) {
        case v1::STAMP_KIND_IDENTITY: return sensor::StampKind::Identity;
        case v1::STAMP_KIND_LATCHED: return sensor::StampKind::Latched;
        default: return sensor::StampKind::OneWay;  // the one that trusts least
    }
}

sensor::Offer offer_of(const v1::Provide& in) {
    sensor::Offer offer;
    offer.origin = in.origin();
    offer.is_live = in.is_live();
    offer.stamp_kind = {stamp_kind_of(in.camera_stamps()), stamp_kind_of(in.audio_stamps()),
                        stamp_kind_of(in.imu_stamps())};
    if (in.has_camera()) {
        offer.camera = {in.camera().width_px(), in.camera().height_px(), in.camera().stride_bytes(),
                        in.camera().rate_hz()};
    }
    if (in.has_audio()) {
        offer.audio = {in.audio().rate_hz(), in.audio().channel_count(), in.audio().block_frames()};
    }
    if (in.has_imu()) {
        offer.imu = {in.imu().rate_hz()};
    }
    return offer;
}

void fill(v1::PipelineStatistics& out, const StreamStatistics& from) {
    const auto us = [](std::int64_t duration_ns) { return static_cast<double>(duration_ns) / 1e3; };
    out.set_windows_closed_count(from.windows_closed_count);
    out.set_hot_path_allocations_count(from.hot_path_allocations_count);
    out.set_camera_copied_bytes(from.camera_copied_bytes);
    out.set_gate_reference_bytes(from.gate_reference_bytes);
    out.set_window_to_tokens_p50_us(us(from.window_to_tokens_p50_ns));
    out.set_window_to_tokens_p99_us(us(from.window_to_tokens_p99_ns));
    out.set_window_to_tokens_max_us(us(from.window_to_tokens_max_ns));
    out.set_mel_slices_lost_count(from.mel_slices_lost_count);
    out.set_imu_rows_lost_count(from.imu_rows_lost_count);
    out.set_invalid_samples_count(from.invalid_samples_count);
}

void fill(v1::ProvidedSlots& out, const ProvidedSlots& slots) {
    out.set_slot_count(slots.slot_count);
    out.set_slot_stride_bytes(slots.slot_stride_bytes);
    out.set_slot_bytes(slots.slot_bytes);
}

}  // namespace

struct Wire::Messages {
    v1::ClientMessage in;
    v1::ServerMessage out;
    v1::ServerMessage window;  ///< kept apart: its fields are overwritten, never freed
    std::string buffer;

    std::span<const std::byte> encode(const v1::ServerMessage& message) {
        message.SerializeToString(&buffer);
        return std::as_bytes(std::span<const char>(buffer.data(), buffer.size()));
    }
};

Wire::Wire() : messages_(std::make_unique<Messages>()) {}
Wire::~Wire() = default;

Request Wire::decode(std::span<const std::byte> bytes) {
    v1::ClientMessage& in = messages_->in;
    if (!in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
        return broken("the packet is not a ClientMessage of channel.proto");
    }
    Request request;
    switch (in.body_case()) {
        case v1::ClientMessage::kHello:
            request.kind = Request::Kind::Hello;
            request.version_min = in.hello().min_version();
            request.version_max = in.hello().max_version();
            return request;
        case v1::ClientMessage::kSubscribe:
            request.kind = Request::Kind::Subscribe;
            for (const int value : in.subscribe().sensors()) {
                request.sensors_known = add_sensor(request.sensors, value) && request.sensors_known;
            }
            return request;
        case v1::ClientMessage::kRelease: {
            const auto& ids = in.release().window_ids();
            if (static_cast<std::size_t>(ids.size()) > kReleaseIdsMax) {
                return broken("a Release may name at most 256 windows");
            }
            request.kind = Request::Kind::Release;
            request.window_ids = {ids.data(), static_cast<std::size_t>(ids.size())};
            return request;
        }
        case v1::ClientMessage::kBye: request.kind = Request::Kind::Bye; return request;
        case v1::ClientMessage::kProvide:
            request.kind = Request::Kind::Provide;
            request.offer = offer_of(in.provide());
            return request;
        case v1::ClientMessage::kProviderReady: request.kind = Request::Kind::ProviderReady; return request;
        default: break;
    }
    if (read_answer_request(in, request)) {
        return request;
    }
    return broken("the message has no body that this version knows; send Hello with the versions you speak");
}

std::span<const std::byte> Wire::welcome(std::uint32_t version, std::uint64_t session_id, std::uint32_t windows_max) {
    v1::Welcome& welcome = *messages_->out.mutable_welcome();
    welcome.set_version(version);
    welcome.set_session_id(session_id);
    welcome.set_windows_in_flight_max(windows_max);
    return messages_->encode(messages_->out);
}

std::span<const std::byte> Wire::streams(std::span<const ArenaOffer> arenas, const StreamOffer* formats,
                                         bool more_follow) {
    v1::Streams& streams = *messages_->out.mutable_streams();
    streams.Clear();
    for (const ArenaOffer& offer : arenas) {
        v1::ArenaDescription& item = *streams.add_arenas();
        item.set_id(offer.id);
        item.set_kind(static_cast<v1::BlockKind>(offer.kind));
        item.set_slot_count(offer.arena->slot_count());
        item.set_slot_stride_bytes(offer.arena->slot_stride_bytes());
        item.set_slot_bytes(offer.arena->slot_bytes());
        item.set_inode(offer.arena->inode());
    }
    if (formats != nullptr && formats->camera) {
        streams.mutable_camera()->set_width_px(formats->camera->width_px);
        streams.mutable_camera()->set_height_px(formats->camera->height_px);
        streams.mutable_camera()->set_stride_bytes(formats->camera->stride_bytes);
        streams.mutable_camera()->set_rate_hz(formats->camera->rate_hz);
    }
    if (formats != nullptr && formats->audio) {
        streams.mutable_audio()->set_rate_hz(formats->audio->rate_hz);
        streams.mutable_audio()->set_channel_count(formats->audio->channel_count);
        streams.mutable_audio()->set_block_frames(formats->audio->block_frames);
    }
    if (formats != nullptr && formats->imu) {
        streams.mutable_imu()->set_rate_hz(formats->imu->rate_hz);
    }
    streams.set_more_follow(more_follow);
    return messages_->encode(messages_->out);
}

std::span<const std::byte> Wire::window(const WindowOut& window, SensorSet sensors, const Counters& counters) {
    v1::Window& out = *messages_->window.mutable_window();
    out.set_id(window.id);
    out.set_t0_ns(window.t0_ns);
    out.set_t1_ns(window.t1_ns);
    out.set_flags(window.flags);
    out.set_close_reason(static_cast<v1::CloseReason>(window.closed));
    out.set_clock_epoch(window.clock_epoch);
    if (window.frame.lease && sensors.has(sensor::Kind::Camera)) {
        v1::Frame& frame = *out.mutable_frame();
        fill(*frame.mutable_block(), window.frame);
        frame.set_exposure_midpoint_ns(window.exposure_midpoint_ns);
        frame.set_sensor_ns(window.frame_sensor_ns);
        frame.set_sequence(window.frame_sequence);
    } else {
        out.clear_frame();
    }
    if (window.patches.lease && sensors.has(sensor::Kind::Camera)) {
        fill(*out.mutable_patches(), window.patches);
    } else {
        out.clear_patches();
    }
    if (window.mel.lease && sensors.has(sensor::Kind::Microphone)) {
        fill(*out.mutable_mel(), window.mel);
    } else {
        out.clear_mel();
    }
    if (window.motion.lease && sensors.has(sensor::Kind::Imu)) {
        fill(*out.mutable_motion(), window.motion);
    } else {
        out.clear_motion();
    }
    // Fields of a repeated message stay allocated when it is cleared.
    out.clear_sounds();
    for (std::size_t i = 0; i < window.sound_count && sensors.has(sensor::Kind::Microphone); ++i) {
        v1::Sound& sound = *out.add_sounds();
        fill(*sound.mutable_block(), window.sounds[i].block);
        sound.set_first_frame_ns(window.sounds[i].first_frame_ns);
    }
    fill(*out.mutable_drops(), counters);
    return messages_->encode(messages_->window);
}

std::span<const std::byte> Wire::notice(NoticeKind kind, std::string_view text, const Counters& counters,
                                        std::uint32_t windows_in_flight, const StreamStatistics& pipeline) {
    v1::Notice& notice = *messages_->out.mutable_notice();
    notice.Clear();
    notice.set_kind(static_cast<v1::NoticeKind>(kind));
    notice.set_text(std::string(text));
    v1::Statistics& statistics = *notice.mutable_statistics();
    statistics.set_windows_sent_count(counters.sent_count);
    statistics.set_windows_released_count(counters.released_count);
    statistics.set_windows_in_flight(windows_in_flight);
    fill(*statistics.mutable_drops(), counters);
    fill(*statistics.mutable_pipeline(), pipeline);
    return messages_->encode(messages_->out);
}

std::span<const std::byte> Wire::error(const Error& error, bool fatal) {
    v1::Error& out = *messages_->out.mutable_error();
    out.Clear();
    fill(out, error);
    out.set_fatal(fatal);
    return messages_->encode(messages_->out);
}

std::span<const std::byte> Wire::provision(const Provision& provision) {
    v1::Provision& out = *messages_->out.mutable_provision();
    out.Clear();
    out.set_feed_bytes(provision.ring_bytes);
    if (provision.camera) {
        fill(*out.mutable_camera(), *provision.camera);
    }
    if (provision.audio) {
        fill(*out.mutable_audio(), *provision.audio);
    }
    return messages_->encode(messages_->out);
}

std::span<const std::byte> Wire::start(SensorSet sensors, std::uint32_t run, std::int64_t hub_start_ns) {
    v1::Start& out = *messages_->out.mutable_start();
    out.Clear();
    for (const sensor::Kind kind : {sensor::Kind::Camera, sensor::Kind::Microphone, sensor::Kind::Imu}) {
        if (sensors.has(kind)) {
            out.add_sensors(static_cast<v1::Sensor>(kind));
        }
    }
    out.set_run(run);
    out.set_hub_start_ns(hub_start_ns);
    return messages_->encode(messages_->out);
}

std::span<const std::byte> Wire::stop() {
    messages_->out.mutable_stop();
    return messages_->encode(messages_->out);
}

}  // namespace perceptd::session

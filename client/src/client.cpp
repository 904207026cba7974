#include "client.hpp"

#include <algorithm>

#include "deadline.hpp"
#include "failure.hpp"

namespace percept {
namespace {

namespace v1 = perceptd::v1;

constexpr std::uint32_t kProtocolVersion = 1;
constexpr int kWelcomeTimeoutMs = 5000;
constexpr int kReleasesPerMessageMax = 256;
constexpr std::size_t kArenasMax = 64;
constexpr std::uint32_t kFrameSidePxMax = 16384;

int status_of(v1::ErrorCode code) {
    switch (code) {
        case v1::ERROR_CODE_INVALID_ARGUMENT: return PERCEPT_ERROR_INVALID_ARGUMENT;
        case v1::ERROR_CODE_NOT_AUTHORIZED:
        case v1::ERROR_CODE_AUTHORITY_UNAVAILABLE: return PERCEPT_ERROR_NOT_AUTHORIZED;
        case v1::ERROR_CODE_VERSION_MISMATCH: return PERCEPT_ERROR_VERSION_MISMATCH;
        case v1::ERROR_CODE_PROTOCOL_VIOLATION: return PERCEPT_ERROR_PROTOCOL;
        default: return PERCEPT_ERROR_REFUSED;
    }
}

}  // namespace

Connection::Connection(Channel channel) : channel_(std::move(channel)) {
    v1::ClientMessage message;
    message.mutable_hello()->set_min_version(kProtocolVersion);
    message.mutable_hello()->set_max_version(kProtocolVersion);
    send_or_throw(message);
    const Deadline deadline(kWelcomeTimeoutMs);
    while (windows_in_flight_max_ == 0) {
        const std::optional<Packet> packet = next_packet(deadline.left_ms());
        if (packet && packet->message.has_welcome()) {
            accept(packet->message.welcome());
        } else if (packet && packet->message.has_error()) {
            refuse(packet->message.error());
        } else if (packet && packet->message.has_notice()) {
            accept(packet->message.notice());
        } else if (packet) {
            throw_protocol("no Welcome after Hello");
        } else if (deadline.left_ms() == 0) {
            throw Failure(PERCEPT_ERROR_DISCONNECTED,
                          "perceptd did not answer within 5 s: see 'systemctl status perceptd', or the output of the "
                          "perceptd you started");
        }
    }
}

void Connection::accept(const v1::Welcome& welcome) {
    if (welcome.version() != kProtocolVersion) {
        throw Failure(PERCEPT_ERROR_VERSION_MISMATCH,
                      "perceptd speaks protocol version " + std::to_string(welcome.version()) + " and libpercept " +
                          std::to_string(kProtocolVersion) + ": install both from the same release");
    }
    if (welcome.windows_in_flight_max() == 0) {
        throw_protocol("a session that may hold no window");
    }
    windows_in_flight_max_ = welcome.windows_in_flight_max();
}

int Connection::subscribe(std::uint32_t sensors, int timeout_ms) {
    require_alive();
    constexpr std::uint32_t kAll = PERCEPT_CAMERA | PERCEPT_MICROPHONE | PERCEPT_IMU;
    if (sensors == 0 || (sensors & ~kAll) != 0) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT,
                      "percept_subscribe needs PERCEPT_CAMERA, PERCEPT_MICROPHONE or PERCEPT_IMU, joined by |");
    }
    if (streams_complete_) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "the session is subscribed already: open another one");
    }
    // After a time-out the question still stands: only the wait goes on.
    if (!subscribed_) {
        v1::ClientMessage message;
        const auto add = [&](std::uint32_t bit, v1::Sensor sensor) {
            if ((sensors & bit) != 0) {
                message.mutable_subscribe()->add_sensors(sensor);
            }
        };
        add(PERCEPT_CAMERA, v1::SENSOR_CAMERA);
        add(PERCEPT_MICROPHONE, v1::SENSOR_MICROPHONE);
        add(PERCEPT_IMU, v1::SENSOR_IMU);
        send_or_throw(message);
        subscribed_ = true;
    }
    const Deadline deadline(timeout_ms);
    while (!streams_complete_) {
        std::optional<Packet> packet = next_packet(deadline.left_ms());
        if (!packet) {
            return PERCEPT_TIMEOUT;
        }
        switch (packet->message.body_case()) {
            case v1::ServerMessage::kStreams: accept(packet->message.streams(), std::move(packet->descriptors)); break;
            case v1::ServerMessage::kError: subscribed_ = false; refuse(packet->message.error());
            case v1::ServerMessage::kWindow: throw_protocol("no Streams after Subscribe");
            default: accept(std::move(*packet));
        }
    }
    return PERCEPT_OK;
}

void Connection::accept(const v1::Streams& streams, std::vector<UniqueFd> descriptors) {
    if (descriptors.size() != 2 * static_cast<std::size_t>(streams.arenas_size())) {
        throw_protocol(std::to_string(descriptors.size()) + " descriptors for " +
                       std::to_string(streams.arenas_size()) + " arenas");
    }
    if (streams.has_camera()) {
        const v1::CameraFormat& camera = streams.camera();
        if (camera.width_px() == 0 || camera.height_px() == 0 || camera.height_px() > kFrameSidePxMax ||
            camera.width_px() > kFrameSidePxMax || camera.stride_bytes() < camera.width_px()) {
            throw_protocol("an impossible camera format");
        }
        camera_ = camera;
    }
    for (int i = 0; i < streams.arenas_size(); ++i) {
        const v1::ArenaDescription& description = streams.arenas(i);
        const bool known = std::any_of(arenas_.begin(), arenas_.end(),
                                       [&](const auto& arena) { return arena->id() == description.id(); });
        if (known || arenas_.size() >= kArenasMax) {
            throw_protocol("arena " + std::to_string(description.id()) + " twice, or too many arenas");
        }
        const auto first = 2 * static_cast<std::size_t>(i);
        arenas_.push_back(
            std::make_unique<ArenaView>(description, std::move(descriptors[first]), std::move(descriptors[first + 1])));
        const std::string& heap = arenas_.back()->heap();
        if (heap_ == "none") {
            heap_ = heap;
        } else if (heap_.find(heap) == std::string::npos) {
            heap_ += "+" + heap;
        }
    }
    streams_complete_ = !streams.more_follow();
}

int Connection::next_window(int timeout_ms, const percept_window*& window) {
    window = nullptr;
    require_alive();
    if (!streams_complete_) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "no sensor is subscribed: call percept_subscribe first");
    }
    const Deadline deadline(timeout_ms);
    while (true) {
        while (!unread_windows_.empty()) {
            const percept_window* const next = unread_windows_.front();
            unread_windows_.pop_front();
            if (is_valid(next)) {
                window = next;
                return PERCEPT_OK;
            }
            release(next);  // revoked before anybody saw it
        }
        if (ended_) {
            return PERCEPT_END_OF_STREAM;
        }
        std::optional<Packet> packet = next_packet(deadline.left_ms());
        if (!packet) {
            return PERCEPT_TIMEOUT;
        }
        accept(std::move(*packet));
    }
}

int Connection::end(int timeout_ms) {
    require_alive();
    v1::ClientMessage message;
    message.mutable_bye();
    const Deadline deadline(timeout_ms);
    send_or_throw(message);
    ended_ = true;
    while (notice_kind_ != PERCEPT_NOTICE_SESSION_END) {
        const std::optional<Packet> packet = next_packet(deadline.left_ms());
        if (!packet) {
            return PERCEPT_TIMEOUT;
        }
        if (packet->message.has_notice()) {
            accept(packet->message.notice());
        }
    }
    return PERCEPT_OK;
}

/// False: revoked before we saw it, and given back.
bool Connection::hold(const v1::Window& message) {
    const bool known =
        std::any_of(held_.begin(), held_.end(), [&](const auto& held) { return held->view().id == message.id(); });
    if (known) {
        throw_protocol("window " + std::to_string(message.id()) + " twice");
    }
    auto view = std::make_unique<WindowView>(message, arenas_, camera_ ? &*camera_ : nullptr);
    if (!view->is_valid()) {
        unsent_releases_.push_back(message.id());
        flush_releases();
        return false;
    }
    held_.push_back(std::move(view));
    return true;
}

void Connection::release(const percept_window* window) {
    const auto held = std::find_if(held_.begin(), held_.end(),
                                   [window](const auto& candidate) { return &candidate->view() == window; });
    if (held == held_.end()) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "percept_release: this client does not hold that window");
    }
    unsent_releases_.push_back((*held)->view().id);
    held_.erase(held);
    if (dead_status_ == PERCEPT_OK) {
        flush_releases();
    }
}

bool Connection::is_valid(const percept_window* window) const noexcept {
    const auto held = std::find_if(held_.begin(), held_.end(),
                                   [window](const auto& candidate) { return &candidate->view() == window; });
    return held != held_.end() && (*held)->is_valid();
}

void Connection::flush_releases() {
    while (!unsent_releases_.empty()) {
        const auto count = std::min<std::size_t>(unsent_releases_.size(), kReleasesPerMessageMax);
        const auto end = unsent_releases_.begin() + static_cast<std::ptrdiff_t>(count);
        v1::ClientMessage message;
        message.mutable_release()->mutable_window_ids()->Add(unsent_releases_.begin(), end);
        if (!channel_.send(message)) {
            return;  // the daemon is busy; next_packet goes on with it
        }
        unsent_releases_.erase(unsent_releases_.begin(), end);
    }
}

std::optional<Packet> Connection::next_packet(int timeout_ms) {
    const Deadline deadline(timeout_ms);
    while (true) {
        if (std::optional<Packet> packet = channel_.receive()) {
            return packet;
        }
        switch (channel_.wait(deadline.left_ms(), !unsent_releases_.empty())) {
            case WaitResult::Readable: break;
            case WaitResult::Writable: flush_releases(); break;
            case WaitResult::TimedOut:
            case WaitResult::Interrupted: return std::nullopt;
        }
    }
}

void Connection::accept(const v1::Notice& notice) {
    ++notice_count_;
    notice_kind_ = static_cast<std::uint32_t>(notice.kind());
    notice_text_ = notice.text();
    ended_ = ended_ || notice.kind() == v1::NOTICE_KIND_END_OF_STREAM;
    if (!notice.has_statistics()) {
        return;
    }
    const v1::Statistics& from = notice.statistics();
    const v1::PipelineStatistics& pipeline = from.pipeline();
    statistics_ = {.windows_sent_count = from.windows_sent_count(),
                   .windows_released_count = from.windows_released_count(),
                   .drops = {from.drops().lost_unread_count(), from.drops().lost_unreleased_count(),
                             from.drops().revoked_count(), from.drops().lost_upstream_count()},
                   .windows_closed_count = pipeline.windows_closed_count(),
                   .hot_path_allocations_count = pipeline.hot_path_allocations_count(),
                   .camera_copied_bytes = pipeline.camera_copied_bytes(),
                   .gate_reference_bytes = pipeline.gate_reference_bytes(),
                   .window_to_tokens_p50_us = pipeline.window_to_tokens_p50_us(),
                   .window_to_tokens_p99_us = pipeline.window_to_tokens_p99_us(),
                   .window_to_tokens_max_us = pipeline.window_to_tokens_max_us(),
                   .mel_slices_lost_count = pipeline.mel_slices_lost_count(),
                   .imu_rows_lost_count = pipeline.imu_rows_lost_count(),
                   .invalid_samples_count = pipeline.invalid_samples_count()};
}

void Connection::refuse(const v1::Error& error) {
    std::string text = "perceptd: " + error.text();
    if (error.has_limit()) {
        text += " (limit " + std::to_string(error.limit()) + ", used " + std::to_string(error.used()) + ")";
    }
    const int status = status_of(error.code());
    if (error.fatal()) {
        dead_status_ = status;
    }
    throw Failure(status, text);
}

void Connection::require_alive() const {
    if (dead_status_ != PERCEPT_OK) {
        throw Failure(dead_status_, last_error_);
    }
}

void Connection::send_or_throw(const v1::ClientMessage& message) {
    bool is_sent = false;
    try {
        is_sent = channel_.send(message);
    } catch (const Failure& failure) {
        if (failure.status() != PERCEPT_ERROR_DISCONNECTED) {
            throw;
        }
        // The daemon hung up. What it said before lies in the socket: the reason, where it gave one.
        while (const std::optional<Packet> packet = channel_.receive()) {
            if (packet->message.has_error()) {
                refuse(packet->message.error());
            }
        }
        throw;
    }
    if (!is_sent) {
        throw Failure(PERCEPT_ERROR_DISCONNECTED,
                      "perceptd does not read its channel: see 'systemctl status perceptd', or the output of the "
                      "perceptd you started");
    }
}

percept_notice Connection::last_notice() const noexcept {
    percept_notice notice{};
    notice.count = notice_count_;
    notice.text = notice_text_.c_str();
    notice.kind = notice_kind_;
    return notice;
}

void Connection::note(int status, const std::string& text) {
    last_error_ = text;
    if (status == PERCEPT_ERROR_PROTOCOL || status == PERCEPT_ERROR_DISCONNECTED) {
        dead_status_ = status;
    }
}

}  // namespace percept

#include "session/session.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <limits>

#include "base/log.hpp"
#include "sensor/feed_check.hpp"

namespace perceptd::session {
namespace {

constexpr int kPacketsPerTurn = 16;            // one client cannot hold the loop
constexpr std::uint32_t kSubscribesMax = 8;    // each may raise a dialogue
constexpr std::size_t kArenasPerPacket = kPacketFdsMax / 2;

const char* action_of(sensor::Kind kind) noexcept {
    switch (kind) {
        case sensor::Kind::Camera: return "org.perceptd1.use-camera";
        case sensor::Kind::Microphone: return "org.perceptd1.use-microphone";
        case sensor::Kind::Imu: return "org.perceptd1.use-imu";
    }
    return "org.perceptd1.unknown";
}

constexpr sensor::Kind kKinds[] = {sensor::Kind::Camera, sensor::Kind::Microphone, sensor::Kind::Imu};

arena::Lease share_of(const BlockOut& block, bool allowed) noexcept {
    return allowed && block.lease ? block.lease.share() : arena::Lease();
}

}  // namespace

const char* name_of(EndCause cause) noexcept {
    switch (cause) {
        case EndCause::Client: return "client";
        case EndCause::Requested: return "requested";
        case EndCause::PeerGone: return "peer-gone";
        case EndCause::Revoked: return "revoked";
        case EndCause::Protocol: return "protocol";
        case EndCause::Timeout: return "timeout";
        case EndCause::Unresponsive: return "unresponsive";
        case EndCause::Shutdown: return "shutdown";
    }
    return "unknown";
}

Session::Session(Options options, Channel channel, Quota::Claim claim, Authority& authority, Feed& feed,
                 Handlers handlers)
    : options_(std::move(options)),
      channel_(std::move(channel)),
      claim_(std::move(claim)),
      authority_(authority),
      feed_(feed),
      handlers_(std::move(handlers)) {
    options_.windows_in_flight_max = std::max(options_.windows_in_flight_max, 1u);
    held_.reserve(options_.windows_in_flight_max);
}

Session::~Session() {
    handlers_ = {};
    close(EndCause::Shutdown, "the daemon dropped the session");
}

void Session::handle_ready() noexcept {
    try {
        if (!flush()) {
            return;
        }
        Packet packet;
        for (int i = 0; i < kPacketsPerTurn && state_ != State::Closed; ++i) {
            switch (channel_.receive(packet)) {
                case Status::Ok: break;
                case Status::Again: return;
                case Status::Invalid:
                    fail(Error(ErrorCode::ProtocolViolation,
                               "a packet may have at most 65536 bytes and 8 descriptors; split it"),
                         EndCause::Protocol);
                    return;
                default: close(EndCause::Client, "the client closed the channel"); return;
            }
            if (packet.fd_count != 0) {
                packet.clear();
                fail(Error(ErrorCode::ProtocolViolation, "no message of this version carries descriptors; send none"),
                     EndCause::Protocol);
                return;
            }
            handle(wire_.decode(packet.bytes));
        }
    } catch (const std::exception& failure) {
        close(EndCause::Protocol, failure.what());
    }
}

void Session::handle(const Request& request) {
    switch (request.kind) {
        case Request::Kind::Hello: handle_hello(request); return;
        case Request::Kind::Subscribe: handle_subscribe(request); return;
        case Request::Kind::Release: handle_release(request); return;
        case Request::Kind::Bye:
            notify(NoticeKind::SessionEnd, "the session is over");
            close(EndCause::Client, "the client said Bye");
            return;
        case Request::Kind::Provide: handle_provide(request); return;
        case Request::Kind::ProviderReady: handle_provider_ready(); return;
        case Request::Kind::Broken: break;
    }
    fail(Error(ErrorCode::ProtocolViolation, request.fault), EndCause::Protocol);
}

void Session::handle_hello(const Request& request) {
    if (state_ != State::Hello) {
        fail(Error(ErrorCode::ProtocolViolation, "Hello was sent twice; it is the first message only"),
             EndCause::Protocol);
        return;
    }
    const std::uint32_t version = std::min(request.version_max, kVersionMax);
    if (request.version_min == 0 || request.version_min > request.version_max || version < kVersionMin ||
        version < request.version_min) {
        fail(Error(ErrorCode::VersionMismatch, "this daemon speaks versions " + std::to_string(kVersionMin) + " to " +
                                                   std::to_string(kVersionMax) + ", the client " +
                                                   std::to_string(request.version_min) + " to " +
                                                   std::to_string(request.version_max) + "; update the older one"),
             EndCause::Protocol);
        return;
    }
    state_ = State::Subscribe;
    send_control(wire_.welcome(version, options_.id, options_.windows_in_flight_max));
}

void Session::handle_subscribe(const Request& request) {
    if (state_ != State::Subscribe) {
        fail(Error(ErrorCode::ProtocolViolation,
                   "Subscribe comes once, after Welcome; open another session for other sensors"),
             EndCause::Protocol);
        return;
    }
    if (!may_ask_again()) {
        return;
    }
    if (request.sensors.empty() || !request.sensors_known) {
        send_error(Error(ErrorCode::InvalidArgument, "Subscribe must name camera, microphone or IMU and nothing else"),
                   false);
        return;
    }
    sensors_ = request.sensors;
    std::vector<std::string> actions;
    for (const sensor::Kind kind : kKinds) {
        if (sensors_.has(kind) && !options_.granted.has(kind)) {
            actions.emplace_back(action_of(kind));
        }
    }
    ask(actions);
}

bool Session::may_ask_again() {
    if (++subscribe_count_ <= kSubscribesMax) {
        return true;
    }
    Error error(ErrorCode::QuotaExceeded, "too many attempts to subscribe in one session; open a new one");
    error.limit = kSubscribesMax;
    error.used = subscribe_count_;
    fail(error, EndCause::Protocol);
    return false;
}

void Session::ask(const std::vector<std::string>& actions) {
    state_ = State::Authorizing;
    if (actions.empty()) {
        on_verdict(Verdict::Granted, {});
        return;
    }
    authority_.authorize(options_.peer, actions,
                         [this, alive = std::weak_ptr<char>(alive_)](Verdict verdict, const std::string& denied) {
                             if (alive.expired() || state_ != State::Authorizing) {
                                 return;
                             }
                             try {
                                 on_verdict(verdict, denied);
                             } catch (const std::exception& failure) {
                                 close(EndCause::Unresponsive, failure.what());
                             }
                         });
}

void Session::on_verdict(Verdict verdict, const std::string& denied_action) try {
    if (verdict == Verdict::Denied) {
        throw Error(ErrorCode::NotAuthorized,
                    "polkit does not grant " + denied_action + "; ask the device's owner, or ask for less");
    }
    if (verdict != Verdict::Granted) {
        throw Error(ErrorCode::AuthorityUnavailable, "polkit does not answer, so nothing is granted; is it running?");
    }
    if (offer_) {
        start_providing();
        return;
    }
    const StreamOffer offer = feed_.attach(options_.id, sensors_);
    attached_ = true;
    state_ = State::Streaming;
    send_streams(offer);
} catch (const Error& error) {
    if (state_ == State::Authorizing) {
        state_ = State::Subscribe;
        sensors_ = {};
        offer_.reset();
        send_error(error, false);
    } else if (state_ != State::Closed) {
        fail(error, EndCause::Protocol);
    }
} catch (const std::exception& failure) {
    if (state_ != State::Closed) {
        fail(Error(ErrorCode::Internal, failure.what()), EndCause::Protocol);
    }
}

void Session::handle_provide(const Request& request) {
    if (state_ != State::Subscribe) {
        fail(Error(ErrorCode::ProtocolViolation, "Provide comes once, after Welcome, in place of Subscribe"),
             EndCause::Protocol);
        return;
    }
    if (!may_ask_again()) {
        return;
    }
    try {
        sensor::check_offer(request.offer);
    } catch (const Error& error) {
        send_error(error, false);
        return;
    }
    offer_ = std::make_unique<sensor::Offer>(request.offer);
    ask({"org.perceptd1.manage"});
}

void Session::start_providing() {
    const Provision provision = feed_.provide(options_.id, *offer_);
    provides_ = true;
    state_ = State::Mapping;
    std::array<int, kPacketFdsMax> fds{provision.ring_fd.borrow(), provision.doorbell_fd.borrow()};
    std::size_t count = 2;
    for (const auto* slots : {&provision.camera, &provision.audio}) {
        if (*slots) {
            fds[count++] = (*slots)->fd.borrow();
        }
    }
    send_control(wire_.provision(provision), {fds.data(), count});
}

void Session::handle_provider_ready() {
    if (state_ != State::Mapping) {
        fail(Error(ErrorCode::ProtocolViolation, "ProviderReady comes once, after Provision"), EndCause::Protocol);
        return;
    }
    if (!outbox_.empty()) {
        fail(Error(ErrorCode::ProtocolViolation, "ProviderReady came before Provision was read"), EndCause::Protocol);
        return;
    }
    feed_.provider_ready(options_.id);
    state_ = State::Providing;
}

void Session::start_provider(SensorSet sensors, std::uint32_t run, std::int64_t hub_start_ns) noexcept try {
    if (state_ != State::Closed) {
        send_control(wire_.start(sensors, run, hub_start_ns));
    }
} catch (const std::exception& failure) {
    close(EndCause::Unresponsive, failure.what());
}

void Session::stop_provider() noexcept try {
    if (state_ != State::Closed) {
        send_control(wire_.stop());
    }
} catch (const std::exception& failure) {
    close(EndCause::Unresponsive, failure.what());
}

void Session::send_streams(const StreamOffer& offer) {
    std::vector<ArenaOffer> allowed;
    std::copy_if(offer.arenas.begin(), offer.arenas.end(), std::back_inserter(allowed),
                 [this](const ArenaOffer& item) { return sensors_.has(sensor_of(item.kind)); });
    std::size_t first = 0;
    do {
        const std::size_t count = std::min(kArenasPerPacket, allowed.size() - first);
        const std::span<const ArenaOffer> part(allowed.data() + first, count);
        std::array<int, kPacketFdsMax> fds{};
        for (std::size_t i = 0; i < count; ++i) {
            fds[2 * i] = part[i].arena->shared_fd();
            fds[2 * i + 1] = part[i].arena->header_fd();
        }
        const StreamOffer* formats = first == 0 ? &offer : nullptr;
        first += count;
        send_control(wire_.streams(part, formats, first < allowed.size()), {fds.data(), 2 * count});
    } while (first < allowed.size() && state_ == State::Streaming);
}

void Session::handle_release(const Request& request) {
    for (const std::uint64_t id : request.window_ids) {
        const auto found =
            std::find_if(held_.begin(), held_.end(), [id](const Held& held) { return held.window_id == id; });
        if (found != held_.end()) {
            held_.erase(found);
            claim_.give_window();
            ++counters_.released_count;
        } else if (id > newest_id_ || counters_.sent_count == 0) {
            fail(Error(ErrorCode::ProtocolViolation, "Release names a window that was never sent"), EndCause::Protocol);
            return;
        }  // else revoked, or released before: the client could not know
    }
}

void Session::deliver(const WindowOut& window) noexcept {
    if (state_ != State::Streaming || sensors_.empty()) {
        return;
    }
    if (!upstream_base_known_ || window.lost_upstream_count < upstream_base_count_) {  // first, or the stream restarted
        upstream_base_known_ = true;
        upstream_base_count_ = window.lost_upstream_count;
    }
    counters_.lost_upstream_count = window.lost_upstream_count - upstream_base_count_;
    if (!flush()) {
        return;
    }
    if (!outbox_.empty()) {
        ++counters_.lost_unread_count;  // a window never overtakes a control message
        return;
    }
    if (held_.size() >= options_.windows_in_flight_max || !claim_.take_window()) {
        ++counters_.lost_unreleased_count;
        return;
    }
    try {
        switch (channel_.send(wire_.window(window, sensors_, counters_))) {
            case Status::Ok: hold(window); return;
            case Status::Again:
                claim_.give_window();
                ++counters_.lost_unread_count;
                return;
            default:
                claim_.give_window();
                close(EndCause::Client, "the client closed the channel");
                return;
        }
    } catch (const std::exception& failure) {  // no memory for the message; the claim goes with the session
        close(EndCause::Unresponsive, failure.what());
    }
}

void Session::hold(const WindowOut& window) {
    const bool camera = sensors_.has(sensor::Kind::Camera);
    const bool microphone = sensors_.has(sensor::Kind::Microphone);
    Held& held = held_.emplace_back();
    held.window_id = window.id;
    held.t1_ns = window.t1_ns;
    held.leases = {share_of(window.frame, camera), share_of(window.patches, camera), share_of(window.mel, microphone),
                   share_of(window.motion, sensors_.has(sensor::Kind::Imu))};
    for (std::size_t i = 0; i < window.sound_count; ++i) {
        held.sounds[i] = share_of(window.sounds[i].block, microphone);
    }
    ++counters_.sent_count;
    newest_id_ = window.id;
    captured_at_ns_ = window.t1_ns;
}

bool Session::revoke_oldest() noexcept {
    if (held_.empty()) {
        return false;
    }
    held_.erase(held_.begin());
    claim_.give_window();
    ++counters_.revoked_count;
    return true;
}

std::int64_t Session::oldest_held_ns() const noexcept {
    return held_.empty() ? std::numeric_limits<std::int64_t>::max() : held_.front().t1_ns;
}

void Session::notify(NoticeKind kind, std::string_view text) noexcept {
    if (state_ == State::Closed || state_ == State::Hello) {
        return;
    }
    try {
        send_control(wire_.notice(kind, text, counters_, windows_in_flight(), feed_.statistics()));
    } catch (const std::exception& failure) {
        close(EndCause::Unresponsive, failure.what());
    }
}

void Session::lose(SensorSet sensors, std::string_view text) noexcept {
    if (attached_ && sensors_.intersects(sensors)) {
        sensors_.remove(sensors);  // first: the notice may end the session, which then detaches from the rest
        notify(NoticeKind::SensorLost, text);
    }
}

void Session::check_deadline(std::int64_t now_ns) noexcept {
    // Authorizing is excused: the wearer may be reading a dialogue.
    if ((state_ == State::Hello || state_ == State::Subscribe || state_ == State::Mapping) && options_.handshake_deadline_ns != 0 &&
        now_ns >= options_.handshake_deadline_ns) {
        close(EndCause::Timeout, "the client did not subscribe in time");
    }
}

void Session::send_control(std::span<const std::byte> bytes, std::span<const int> fds) {
    switch (outbox_.send(channel_, bytes, fds)) {
        case Status::Ok: return;
        case Status::Again:
            if (handlers_.on_waiting) {
                handlers_.on_waiting(*this);
            }
            return;
        case Status::Full: close(EndCause::Unresponsive, "the client does not read its control messages"); return;
        default: close(EndCause::Client, "the client closed the channel"); return;
    }
}

bool Session::flush() noexcept {
    if (outbox_.flush(channel_) == Status::Ended) {
        close(EndCause::Client, "the client closed the channel");
    }
    return state_ != State::Closed;
}

void Session::send_error(const Error& error, bool fatal) {
    send_control(wire_.error(error, fatal));
}

void Session::fail(const Error& error, EndCause cause) {
    if (outbox_.empty() && state_ != State::Closed) {
        static_cast<void>(channel_.send(wire_.error(error, true)));  // the session ends whether it arrives or not
    }
    close(cause, error.what());
}

void Session::close(EndCause cause, std::string_view text) noexcept {
    if (state_ == State::Closed) {
        return;
    }
    state_ = State::Closed;
    end_cause_ = cause;
    held_.clear();
    claim_.end();
    outbox_.clear();
    alive_.reset();
    if (attached_) {
        attached_ = false;
        feed_.detach(options_.id, sensors_);
    }
    if (provides_) {
        provides_ = false;
        feed_.provider_gone(options_.id);
    }
    ::shutdown(channel_.borrow(), SHUT_RDWR);
    try {
        end_text_ = text;
        if (handlers_.on_end) {
            handlers_.on_end(*this);
        }
    } catch (const std::exception& failure) {
        log::error("session", failure.what());
    }
}

}  // namespace perceptd::session

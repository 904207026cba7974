#include "session/session.hpp"

#include <sys/socket.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace perceptd::session {
namespace {

constexpr std::int64_t kLongestStallNs = 2 * kNsPerSecond;
constexpr int kPacketsPerTurn = 16;  // one client cannot hold the loop

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

const char* name_of(SessionState state) noexcept {
    switch (state) {
        case Session::State::Hello: return "hello";
        case Session::State::Subscribe: return "subscribe";
        case Session::State::Authorizing: return "authorizing";
        case Session::State::Streaming: return "streaming";
        case Session::State::Mapping: return "mapping";
        case Session::State::Providing: return "providing";
        case Session::State::Closed: return "closed";
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
      handlers_(std::move(handlers)),
      held_(std::max(options_.windows_in_flight_max, 1u)) {
    options_.windows_in_flight_max = std::max(options_.windows_in_flight_max, 1u);
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
        pump_answers();
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
        case Request::Kind::Generate:
        case Request::Kind::StopGeneration:
        case Request::Kind::Resume: handle_answer(request); return;
        case Request::Kind::Broken: break;
    }
    fail(Error(ErrorCode::ProtocolViolation, request.fault), EndCause::Protocol);
}

void Session::handle_release(const Request& request) {
    for (const std::uint64_t id : request.window_ids) {
        if (held_.release(id)) {
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
    if (!upstream_base_count_ ||
        window.lost_upstream_count < *upstream_base_count_) {  // first, or the stream restarted
        upstream_base_count_ = window.lost_upstream_count;
    }
    counters_.lost_upstream_count = window.lost_upstream_count - *upstream_base_count_;
    if (!flush()) {
        return;
    }
    if (!outbox_.empty()) {
        ++counters_.lost_unread_count;  // a window never overtakes a control message
        return;
    }
    if (held_.is_full() || !claim_.take_window()) {
        ++counters_.lost_unreleased_count;
        return;
    }
    try {
        switch (channel_.send(wire_.window(window, sensors_, counters_))) {
            case Status::Ok:
                held_.add(window, sensors_);
                ++counters_.sent_count;
                newest_id_ = window.id;
                captured_at_ns_ = window.t1_ns;
                return;
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

bool Session::holds_up(std::int64_t now_ns) noexcept {
    if (state_ != State::Streaming || (!held_.is_full() && !wants_write())) {
        full_since_ns_ = 0;
        return false;
    }
    full_since_ns_ = full_since_ns_ == 0 ? now_ns : full_since_ns_;
    return now_ns - full_since_ns_ < kLongestStallNs;
}

bool Session::revoke_oldest() noexcept {
    if (!held_.release_oldest()) {
        return false;
    }
    claim_.give_window();
    ++counters_.revoked_count;
    return true;
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
    if ((state_ == State::Hello || state_ == State::Subscribe || state_ == State::Mapping) &&
        options_.handshake_deadline_ns != 0 && now_ns >= options_.handshake_deadline_ns) {
        try {
            fail(Error(ErrorCode::ProtocolViolation, "Hello and Subscribe must follow within 10 s of connecting"),
                 EndCause::Timeout);
        } catch (const std::exception& failure) {  // no memory for the words
            close(EndCause::Timeout, failure.what());
        }
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
    end_.cause = cause;
    held_.release_all();
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
        end_.text = text;
        if (handlers_.on_end) {
            handlers_.on_end(*this);
        }
    } catch (const std::exception& failure) {
        log::error("session", failure.what());
    }
}

}  // namespace perceptd::session

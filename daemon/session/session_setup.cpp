// How a session begins: Hello, then Subscribe or Provide, with the authority's answer in between. The rest of Session
// is in session.cpp.
#include <algorithm>
#include <array>

#include "sensor/feed_check.hpp"
#include "session/actions.hpp"
#include "session/session.hpp"

namespace perceptd::session {
namespace {

constexpr std::uint32_t kSubscribesMax = 8;  // each may raise a dialogue
constexpr std::size_t kArenasPerPacket = kPacketFdsMax / 2;

}  // namespace

std::vector<std::string> Session::granted_actions() const {
    if (provides_) {
        return {kManageAction};
    }
    std::vector<std::string> actions = actions_of(state_ == State::Streaming ? sensors_ : options_.granted);
    if (answers_ && answers_->is_granted()) {
        actions.emplace_back(kInferAction);
    }
    return actions;
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
        send_control(wire_.error(
            Error(ErrorCode::InvalidArgument, "Subscribe must name camera, microphone or IMU and nothing else"),
            false));
        return;
    }
    sensors_ = request.sensors;
    SensorSet to_ask = sensors_;
    to_ask.remove(options_.granted);
    ask(actions_of(to_ask));
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
        throw Error(ErrorCode::NotAuthorized, authority_.denial(denied_action));
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
        send_control(wire_.error(error, false));
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
        send_control(wire_.error(error, false));
        return;
    }
    offer_ = std::make_unique<sensor::Offer>(request.offer);
    ask({kManageAction});
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

}  // namespace perceptd::session

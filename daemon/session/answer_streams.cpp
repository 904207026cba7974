#include "session/answer_streams.hpp"

#include <utility>

#include "session/actions.hpp"
#include "session/answer_wire.hpp"

namespace perceptd::session {
namespace {

constexpr std::size_t kAskedMax = 4;
constexpr std::size_t kFollowedMax = 8;
constexpr int kPacketsPerTurn = 16;  // one client cannot hold the loop
constexpr std::size_t kTokensPerPacket = 256;
constexpr std::size_t kTextBytesPerPacket = 48 * 1024;

}  // namespace

AnswerStreams::AnswerStreams(const Peer& peer, Authority& authority, Answers* answers, Hooks hooks)
    : peer_(peer), authority_(authority), answers_(answers), hooks_(std::move(hooks)) {}

void AnswerStreams::refuse(const Request& request, const Error& error) {
    if (request.kind != Request::Kind::StopGeneration) {
        hooks_.send(refused_message(request.request_id, error));
    }
}

void AnswerStreams::handle(const Request& request) {
    if (answers_ == nullptr) {
        refuse(request, Error(ErrorCode::Unsupported, "this daemon runs no models"));
        return;
    }
    const bool is_stop = request.kind == Request::Kind::StopGeneration;
    const std::size_t asked_count = waiting_.size() + asked_count_;
    if (is_granted_ && is_stop) {
        submit(request);
        return;
    }
    if (asked_count >= kAskedMax || places_.size() >= kFollowedMax) {
        const bool is_asked = asked_count >= kAskedMax;
        Error error(ErrorCode::QuotaExceeded, is_asked ? "too many questions of this session wait for an answer's begin"
                                                       : "this session reads too many answers; wait for one to end");
        error.limit = is_asked ? kAskedMax : kFollowedMax;
        error.used = is_asked ? asked_count : places_.size();
        refuse(request, error);
        return;
    }
    if (is_granted_) {
        submit(request);
        return;
    }
    waiting_.push_back(request);
    if (!std::exchange(is_asking_, true)) {
        authorize();
    }
}

void AnswerStreams::authorize() {
    authority_.authorize(peer_, {kInferAction},
                         [this, alive = std::weak_ptr<char>(alive_)](Verdict verdict, const std::string& denied) {
                             if (!alive.expired()) {
                                 decided(verdict, denied);
                             }
                         });
}

void AnswerStreams::decided(Verdict verdict, const std::string& denied_action) {
    is_asking_ = false;
    const std::vector<Request> waiting = std::exchange(waiting_, {});
    if (verdict == Verdict::Granted) {
        is_granted_ = true;
        hooks_.on_granted();
    }
    for (const Request& request : waiting) {
        if (verdict == Verdict::Granted) {
            submit(request);
        } else if (verdict == Verdict::Denied) {
            refuse(request, Error(ErrorCode::NotAuthorized, authority_.denial(denied_action)));
        } else {
            refuse(request, Error(ErrorCode::AuthorityUnavailable,
                                  "polkit does not answer, so nothing is granted; is it running?"));
        }
    }
}

void AnswerStreams::submit(const Request& request) {
    const std::uint32_t uid = peer_.uid;
    if (request.kind == Request::Kind::StopGeneration) {
        answers_->stop(uid, request.generation_id);
        return;
    }
    const auto reply = [this, request, alive = std::weak_ptr<char>(alive_)](const generate::Begun* begun,
                                                                            const Error* error) {
        if (!alive.expired()) {
            --asked_count_;
            replied(request, begun, error);
        }
    };
    ++asked_count_;
    if (request.kind == Request::Kind::Resume) {
        answers_->resume(uid, request.generation_id, reply);
    } else {
        answers_->ask(uid, request.question, reply);
    }
}

void AnswerStreams::replied(const Request& request, const generate::Begun* begun, const Error* error) {
    if (error != nullptr) {
        refuse(request, *error);
        return;
    }
    if (request.next_number > begun->tokens_max) {
        Error beyond(ErrorCode::InvalidArgument, "the answer has at most " + std::to_string(begun->tokens_max) +
                                                     " tokens; resume from one of them");
        beyond.limit = begun->tokens_max;
        beyond.used = request.next_number;
        refuse(request, beyond);
        return;
    }
    hooks_.send(begun_message(request.request_id, *begun, request.next_number));
    places_[begun->id] = {begun->log, request.next_number, {}};
    hooks_.on_readable();
}

std::optional<Status> AnswerStreams::send_part(Channel& channel, std::uint64_t id, Place& place, bool& is_over) {
    generate::AnswerPart part = place.log->read(place.next_number, kTokensPerPacket);
    for (std::size_t tokens = kTokensPerPacket; part.text.size() > kTextBytesPerPacket && tokens > 1;) {
        tokens /= 2;
        part = place.log->read(place.next_number, tokens);
    }
    is_over = part.finish != generate::FinishReason::None;
    if (part.tokens.empty() && !is_over) {
        return std::nullopt;
    }
    generate::HeadroomWatch headroom = place.headroom;
    const bool is_news = headroom.observe(part.headroom).has_value();
    const std::string message = token_message(id, part, is_news || is_over);
    const Status status = channel.send(std::as_bytes(std::span(message)));
    if (status == Status::Ok) {
        place.next_number += part.tokens.size();
        place.headroom = headroom;
    }
    return status;
}

Status AnswerStreams::pump(Channel& channel) {
    is_blocked_ = false;
    int sent = 0;
    for (auto next = places_.begin(); next != places_.end();) {
        bool is_over = false;
        const std::optional<Status> status = send_part(channel, next->first, next->second, is_over);
        if (!status) {
            ++next;
            continue;
        }
        if (status == Status::Again || (status == Status::Ok && ++sent == kPacketsPerTurn && !is_over)) {
            is_blocked_ = true;
            return Status::Again;
        }
        if (status != Status::Ok) {
            return Status::Ended;
        }
        next = is_over ? places_.erase(next) : next;  // the same again: it may have more
    }
    return Status::Ok;
}

}  // namespace perceptd::session

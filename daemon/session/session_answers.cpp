// The questions of a session: what a model says travels beside the windows, and never before a control message.
#include "session/session.hpp"

namespace perceptd::session {

void Session::handle_answer(const Request& request) {
    if (state_ == State::Hello) {
        fail(Error(ErrorCode::ProtocolViolation, "Hello is the first message"), EndCause::Protocol);
        return;
    }
    if (!answers_) {
        answers_ = std::make_unique<AnswerStreams>(
            options_.peer, authority_, feed_.answers(),
            AnswerStreams::Hooks{.send =
                                     [this](const std::string& message) {
                                         if (state_ != State::Closed) {
                                             send_control(std::as_bytes(std::span(message)));
                                         }
                                     },
                                 .on_granted = [this] { options_.handshake_deadline_ns = 0; },
                                 .on_readable = [this] { pump_answers(); }});
    }
    answers_->handle(request);
}

bool Session::wants_write() const noexcept {
    return !outbox_.empty() || (answers_ && answers_->wants_write());
}

void Session::pump_answers() noexcept {
    if (state_ == State::Closed || !answers_ || !outbox_.empty()) {
        return;
    }
    try {
        const bool waited = wants_write();
        if (answers_->pump(channel_) == Status::Ended) {
            close(EndCause::Client, "the client closed the channel");
        } else if (wants_write() && !waited && handlers_.on_waiting) {
            handlers_.on_waiting(*this);
        }
    } catch (const std::exception& failure) {
        close(EndCause::Unresponsive, failure.what());
    }
}

}  // namespace perceptd::session

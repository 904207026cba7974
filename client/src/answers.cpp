// The answers of a session: questions out, parts in. The rest of Connection is in client.cpp.
#include <cstddef>
#include <cstring>

#include "client.hpp"
#include "deadline.hpp"
#include "failure.hpp"

namespace percept {
namespace {

namespace v1 = perceptd::v1;

constexpr std::uint32_t kStopsMax = 16;

const char* text_or_empty(const char* text) {
    return text == nullptr ? "" : text;
}

}  // namespace

int Connection::ask(const percept_question& question, int timeout_ms, percept_answer& answer) {
    require_alive();
    if (question.struct_bytes < offsetof(percept_question, stops) + sizeof(question.stops)) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "the question is not set up: begin with PERCEPT_QUESTION_INIT");
    }
    if (question.stop_count > kStopsMax || (question.stop_count != 0 && question.stops == nullptr)) {
        throw Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "a question may have at most 16 stop strings");
    }
    v1::ClientMessage message;
    v1::Generate& out = *message.mutable_generate();
    out.set_request_id(++request_count_);
    out.set_model(text_or_empty(question.model));
    out.set_version(text_or_empty(question.version));
    out.set_prompt(text_or_empty(question.prompt));
    out.set_thread(question.thread);
    out.set_tokens_max(question.tokens_max);
    v1::Sampling& sampling = *out.mutable_sampling();
    if (question.has_seed != 0) {
        sampling.set_seed(question.seed);
    }
    sampling.set_temperature(question.temperature);
    sampling.set_top_k(question.top_k);
    sampling.set_top_p(question.top_p);
    sampling.set_min_p(question.min_p);
    sampling.set_repetition_penalty(question.repetition_penalty);
    for (std::uint32_t i = 0; i < question.stop_count; ++i) {
        out.add_stops(text_or_empty(question.stops[i]));
    }
    send_or_throw(message);
    return await_answer(request_count_, timeout_ms, answer);
}

int Connection::resume(std::uint64_t generation_id, std::uint64_t next_number, int timeout_ms, percept_answer& answer) {
    require_alive();
    v1::ClientMessage message;
    message.mutable_resume()->set_request_id(++request_count_);
    message.mutable_resume()->set_generation_id(generation_id);
    message.mutable_resume()->set_next_number(next_number);
    send_or_throw(message);
    return await_answer(request_count_, timeout_ms, answer);
}

int Connection::await_answer(std::uint64_t request_id, int timeout_ms, percept_answer& answer) {
    const Deadline deadline(timeout_ms);
    while (true) {
        std::optional<Packet> packet = next_packet(deadline.left_ms());
        if (!packet) {
            return PERCEPT_TIMEOUT;
        }
        reply_.reset();
        accept(std::move(*packet));
        if (reply_ && reply_->has_generation_refused() && reply_->generation_refused().request_id() == request_id) {
            refuse(reply_->generation_refused().error());
        }
        if (reply_ && reply_->has_generation_begun() && reply_->generation_begun().request_id() == request_id) {
            const v1::GenerationBegun& begun = reply_->generation_begun();
            answer = {.generation_id = begun.generation_id(),
                      .thread = begun.thread(),
                      .next_number = begun.next_number(),
                      .prompt_tokens = begun.prompt_tokens(),
                      .tokens_max = begun.tokens_max(),
                      .context_tokens_max = begun.context_tokens_max(),
                      .seed = begun.seed()};
            return PERCEPT_OK;
        }
    }
}

void Connection::accept(Packet packet) {
    v1::ServerMessage& message = packet.message;
    if (!packet.descriptors.empty()) {
        throw_protocol("descriptors with a message that has none");
    }
    switch (message.body_case()) {
        case v1::ServerMessage::kWindow:
            if (!streams_complete_) {
                throw_protocol("a window before the streams");
            }
            if (hold(message.window())) {
                unread_windows_.push_back(&held_.back()->view());
            }
            return;
        case v1::ServerMessage::kNotice: accept(message.notice()); return;
        case v1::ServerMessage::kToken: unread_parts_.push_back(std::move(*message.mutable_token())); return;
        case v1::ServerMessage::kGenerationBegun:
        case v1::ServerMessage::kGenerationRefused: reply_ = std::move(message); return;
        case v1::ServerMessage::kError: refuse(message.error());
        case v1::ServerMessage::BODY_NOT_SET: return;  // a newer daemon's message that we may ignore
        default: throw_protocol("a greeting in the middle of the stream");
    }
}

int Connection::next_part(int timeout_ms, const percept_part*& part) {
    part = nullptr;
    const Deadline deadline(timeout_ms);
    while (unread_parts_.empty()) {
        require_alive();
        std::optional<Packet> packet = next_packet(deadline.left_ms());
        if (!packet) {
            return PERCEPT_TIMEOUT;
        }
        accept(std::move(*packet));
    }
    part_token_ = std::move(unread_parts_.front());
    unread_parts_.pop_front();
    const v1::Headroom& headroom = part_token_.headroom();
    part_ = {.generation_id = part_token_.generation_id(),
             .first_number = part_token_.first_number(),
             .token_ids = part_token_.token_ids().data(),
             .text = part_token_.text().c_str(),
             .failure = part_token_.failure().c_str(),
             .text_bytes = part_token_.text().size(),
             .context_used_tokens = headroom.used_tokens(),
             .context_capacity_tokens = headroom.capacity_tokens(),
             .token_count = static_cast<std::uint32_t>(part_token_.token_ids_size()),
             .finish = static_cast<std::uint32_t>(part_token_.finish()),
             .headroom_level = static_cast<std::uint32_t>(headroom.level())};
    part = &part_;
    return PERCEPT_OK;
}

void Connection::stop(std::uint64_t generation_id) {
    require_alive();
    v1::ClientMessage message;
    message.mutable_stop_generation()->set_generation_id(generation_id);
    send_or_throw(message);
}

}  // namespace percept

#include "session/answer_wire.hpp"

#include <perceptd/v1/channel.pb.h>

#include "session/wire.hpp"

namespace perceptd::session {
namespace {

using generate::FinishReason;

static_assert(static_cast<int>(FinishReason::StopToken) == v1::FINISH_REASON_STOP_TOKEN);
static_assert(static_cast<int>(FinishReason::Interrupted) == v1::FINISH_REASON_INTERRUPTED);
static_assert(static_cast<int>(generate::HeadroomLevel::Hard) == v1::HEADROOM_LEVEL_HARD);

generate::SamplerOptions sampling_of(const v1::Sampling& in) {
    generate::SamplerOptions sampling;
    sampling.seed = in.seed();
    sampling.temperature = in.temperature();
    sampling.top_k = in.top_k();
    // What is off is absent, which in this encoding is 0.
    sampling.top_p = in.top_p() == 0 ? sampling.top_p : in.top_p();
    sampling.min_p = in.min_p();
    sampling.repetition_penalty = in.repetition_penalty() == 0 ? sampling.repetition_penalty : in.repetition_penalty();
    sampling.repetition_window = in.repetition_window() == 0 ? sampling.repetition_window : in.repetition_window();
    for (const v1::LogitBias& bias : in.biases()) {
        sampling.biases.push_back({bias.token_id(), bias.bias()});
    }
    return sampling;
}

generate::Question question_of(const v1::Generate& in) {
    generate::Question question;
    question.model = in.model();
    question.version = in.version();
    question.text = in.prompt();
    question.thread = in.thread();
    question.has_seed = in.sampling().has_seed();
    question.options.sampling = sampling_of(in.sampling());
    question.options.tokens_max = in.tokens_max();
    question.options.stops.assign(in.stops().begin(), in.stops().end());
    return question;
}

}  // namespace

bool read_answer_request(const v1::ClientMessage& message, Request& request) {
    switch (message.body_case()) {
        case v1::ClientMessage::kGenerate:
            request.kind = Request::Kind::Generate;
            request.request_id = message.generate().request_id();
            request.question = question_of(message.generate());
            return true;
        case v1::ClientMessage::kStopGeneration:
            request.kind = Request::Kind::StopGeneration;
            request.generation_id = message.stop_generation().generation_id();
            return true;
        case v1::ClientMessage::kResume:
            request.kind = Request::Kind::Resume;
            request.request_id = message.resume().request_id();
            request.generation_id = message.resume().generation_id();
            request.next_number = message.resume().next_number();
            return true;
        default: return false;
    }
}

void fill(v1::Error& out, const Error& error) {
    out.set_code(static_cast<v1::ErrorCode>(error.code()));
    out.set_text(error.what());
    if (error.limit) {
        out.set_limit(*error.limit);
    }
    if (error.used) {
        out.set_used(*error.used);
    }
    if (error.retry_after_ms) {
        out.set_retry_after_ms(*error.retry_after_ms);
    }
}

std::string begun_message(std::uint64_t request_id, const generate::Begun& begun, std::uint64_t next_number) {
    v1::ServerMessage message;
    v1::GenerationBegun& out = *message.mutable_generation_begun();
    out.set_request_id(request_id);
    out.set_generation_id(begun.id);
    out.set_thread(begun.thread);
    out.set_next_number(next_number);
    out.set_prompt_tokens(begun.prompt_tokens);
    out.set_tokens_max(begun.tokens_max);
    out.set_context_tokens_max(begun.context_tokens_max);
    out.set_seed(begun.seed);
    return message.SerializeAsString();
}

std::string refused_message(std::uint64_t request_id, const Error& error) {
    v1::ServerMessage message;
    message.mutable_generation_refused()->set_request_id(request_id);
    fill(*message.mutable_generation_refused()->mutable_error(), error);
    return message.SerializeAsString();
}

std::string token_message(std::uint64_t generation_id, const generate::AnswerPart& part, bool with_headroom) {
    v1::ServerMessage message;
    v1::Token& out = *message.mutable_token();
    out.set_generation_id(generation_id);
    out.set_first_number(part.first_number);
    out.mutable_token_ids()->Add(part.tokens.begin(), part.tokens.end());
    out.set_text(part.text);
    out.set_finish(static_cast<v1::FinishReason>(part.finish));
    out.set_failure(part.failure);
    if (with_headroom) {
        v1::Headroom& headroom = *out.mutable_headroom();
        headroom.set_used_tokens(part.headroom.used_tokens);
        if (part.headroom.capacity_tokens) {
            headroom.set_capacity_tokens(*part.headroom.capacity_tokens);
        }
        headroom.set_level(static_cast<v1::HeadroomLevel>(part.headroom.level()));
    }
    return message.SerializeAsString();
}

}  // namespace perceptd::session

// A pass may give tokens behind the one that ends the text; they are cut from context and cache at once.
#include "generate/generation.hpp"

#include <utility>

#include "base/error.hpp"

namespace perceptd::generate {

const char* name_of(FinishReason reason) noexcept {
    switch (reason) {
        case FinishReason::None: return "none";
        case FinishReason::StopToken: return "stop_token";
        case FinishReason::StopString: return "stop_string";
        case FinishReason::TokensMax: return "tokens_max";
        case FinishReason::Cancelled: return "cancelled";
        case FinishReason::Failed: return "failed";
    }
    return "unknown";
}

namespace {

/// Refuses before anything is read: the numbers are exact, the tokens are counted.
DecoderSequence with_room(DecoderSequence target, std::size_t prompt_tokens, std::size_t tokens_max) {
    const std::size_t capacity = target.cache().capacity();
    if (tokens_max == 0) {
        throw Error(ErrorCode::InvalidArgument, "an answer of at most 0 tokens; ask for at least 1");
    }
    if (prompt_tokens > capacity || tokens_max > capacity - prompt_tokens) {
        Error error(ErrorCode::QuotaExceeded, "a prompt of " + std::to_string(prompt_tokens) +
                                                  " tokens and an answer of up to " + std::to_string(tokens_max) +
                                                  " do not fit into " + std::to_string(capacity) +
                                                  "; shorten the prompt or ask for a shorter answer");
        error.limit = capacity;
        error.used = prompt_tokens + tokens_max;
        throw error;
    }
    return target;
}

}  // namespace

Generation::Generation(const model::Vocabulary& vocabulary, DecoderSequence target, Drafter& drafter, Depth& depth,
                       const GenerationOptions& options, std::span<const std::uint32_t> prompt)
    : vocabulary_(&vocabulary),
      speculation_(with_room(std::move(target), prompt.size(), options.tokens_max), options.sampling, drafter, depth,
                   prompt),
      text_(vocabulary, {.continues_text = options.continues_text}),
      stops_(options.stops),
      prompt_tokens_(prompt.size()),
      tokens_max_(options.tokens_max) {}

void Generation::take(std::uint32_t token, Piece& piece) {
    const auto id = static_cast<model::TokenId>(token);
    if (vocabulary_->kind_of(id) == model::TokenKind::Control || vocabulary_->eos() == id) {
        finish_ = FinishReason::StopToken;
        return;
    }
    piece.text += stops_.push(text_.push(id));
    if (stops_.is_found()) {
        finish_ = FinishReason::StopString;
    }
}

Piece Generation::step() {
    Piece piece{.first_number = token_count()};
    if (finish_ != FinishReason::None) {
        piece.finish = finish_;
        return piece;
    }
    if (is_cancelled_.load(std::memory_order_relaxed)) {
        finish_ = FinishReason::Cancelled;
    } else {
        status_ = speculation_.step(tokens_max_ - token_count());
        finish_ = status_ == Status::Ok ? FinishReason::None : FinishReason::Failed;
    }
    if (finish_ == FinishReason::None) {
        std::size_t length = prompt_tokens_ + piece.first_number;
        for (const std::uint32_t token : speculation_.newest()) {
            take(token, piece);
            ++length;
            if (finish_ != FinishReason::None) {
                break;
            }
        }
        speculation_.cut(length);
        piece.tokens = speculation_.newest();
        if (finish_ == FinishReason::None && token_count() == tokens_max_) {
            finish_ = FinishReason::TokensMax;
        }
        piece.headroom_reached = headroom_watch_.observe(headroom());
    }
    if (finish_ != FinishReason::None) {
        piece.text += stops_.push(text_.finish());
        piece.text += stops_.finish();
    }
    piece.finish = finish_;
    return piece;
}

}  // namespace perceptd::generate

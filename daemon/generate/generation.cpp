// A pass may give tokens behind the one that ends the text; they are cut from context and cache at once.
#include "generate/generation.hpp"

#include <utility>

#include "base/error.hpp"

namespace perceptd::generate {

namespace {

std::vector<std::uint32_t> joined(std::span<const std::uint32_t> prompt, std::span<const std::uint32_t> answered) {
    std::vector<std::uint32_t> whole(prompt.begin(), prompt.end());
    whole.insert(whole.end(), answered.begin(), answered.end());
    return whole;
}

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
                       const GenerationOptions& options, std::span<const std::uint32_t> prompt,
                       std::span<const std::uint32_t> answered)
    : speculation_(with_room(std::move(target), prompt.size(), options.tokens_max), options.sampling, drafter, depth,
                   joined(prompt, answered)),
      text_(vocabulary, options.stops, options.continues_text),
      prompt_tokens_(prompt.size()),
      tokens_max_(options.tokens_max),
      answered_tokens_(answered.size()) {
    if (answered.size() > tokens_max_) {
        throw Error(ErrorCode::InvalidArgument, "an answer of at most " + std::to_string(tokens_max_) +
                                                    " tokens cannot go on behind " + std::to_string(answered.size()));
    }
}

void Generation::take(std::uint32_t token, Piece& piece) {
    piece.text += text_.take(token);
    piece.text_ends.push_back(piece.text.size());
    finish_ = text_.end();
}

void Generation::finish(Piece& piece) {
    if (finish_ != FinishReason::None) {
        piece.text += text_.finish();
    }
    piece.finish = finish_;
}

Piece Generation::replay() {
    Piece piece;
    if (token_count() != answered_tokens_ || finish_ != FinishReason::None) {
        return piece;  // told already
    }
    piece.tokens = context().subspan(prompt_tokens_);
    for (const std::uint32_t token : piece.tokens) {
        if (finish_ != FinishReason::None) {
            throw Error(ErrorCode::InvalidArgument, "the kept answer goes on behind its end; it is damaged, ask again");
        }
        take(token, piece);
    }
    if (finish_ == FinishReason::None && answered_tokens_ == tokens_max_) {
        finish_ = FinishReason::TokensMax;
    }
    finish(piece);
    return piece;
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
    finish(piece);
    return piece;
}

}  // namespace perceptd::generate

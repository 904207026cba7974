// A pass holds the tokens that the cache lacks (the newest one; at first the prompt) and the draft behind them.
#include "generate/speculation.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace perceptd::generate {

Speculation::Speculation(DecoderSequence target, const SamplerOptions& sampling, Drafter& drafter, Depth& depth,
                         std::span<const std::uint32_t> prompt)
    : target_(std::move(target)),
      sampler_(sampling, target_.config().vocabulary_size),
      drafter_(&drafter),
      depth_(&depth) {
    const std::size_t capacity = target_.cache().capacity();
    const auto is_unknown = [&](std::uint32_t token) { return token >= target_.config().vocabulary_size; };
    if (prompt.empty() || std::any_of(prompt.begin(), prompt.end(), is_unknown)) {
        throw Error(ErrorCode::InvalidArgument,
                    "the prompt is empty or holds a token beyond the vocabulary; encode it with the model's tokenizer");
    }
    if (prompt.size() > capacity) {
        Error error(ErrorCode::QuotaExceeded, "a prompt of " + std::to_string(prompt.size()) +
                                                  " tokens for a sequence of " + std::to_string(capacity) +
                                                  "; nothing is cut off silently, shorten it or ask for more");
        error.limit = capacity;
        error.used = prompt.size();
        throw error;
    }
    context_.reserve(capacity + kDraftTokensMax + 1);
    context_.assign(prompt.begin(), prompt.end());
    newest_begin_ = context_.size();
    pass_tokens_.reserve(target_.batch_tokens_max());
    target_.cache().reuse(prompt);
    drafter_->begin(capacity + kDraftTokensMax + 1);
}

std::size_t Speculation::draft(std::size_t pending, std::size_t tokens_max) noexcept {
    // No more than could be emitted, than the sequence holds, than the pass takes.
    const std::size_t room = std::min({tokens_max - 1, target_.cache().capacity() - context_.size(),
                                       target_.batch_tokens_max() - pending, std::size_t{depth_->choose()}});
    pass_tokens_.resize(pending + room);
    const std::span<std::uint32_t> guesses = std::span(pass_tokens_).subspan(pending);
    const std::size_t given = room == 0 ? 0 : std::min(room, drafter_->draft(context_, guesses));
    const auto end = std::find_if(guesses.begin(), guesses.begin() + static_cast<std::ptrdiff_t>(given),
                                  [&](std::uint32_t token) { return token >= target_.config().vocabulary_size; });
    const auto drafted = static_cast<std::size_t>(end - guesses.begin());
    pass_tokens_.resize(pending + drafted);
    return drafted;
}

Status Speculation::step(std::size_t tokens_max) noexcept {
    newest_begin_ = context_.size();
    const std::size_t cached = target_.cache().length();
    const std::size_t pending = context_.size() - cached;
    if (context_.size() > target_.cache().capacity()) {
        return Status::Full;
    }
    if (pending > target_.batch_tokens_max()) {
        const auto tokens = std::span(context_).subspan(cached, target_.batch_tokens_max());
        const Status status = target_.run(tokens, 0);
        if (status == Status::Ok) {
            target_.keep(tokens);
            ++counts_.prompt_passes;
        }
        return status;
    }
    const std::int64_t started_at_ns = monotonic_ns();
    pass_tokens_.assign(context_.end() - static_cast<std::ptrdiff_t>(pending), context_.end());
    const std::size_t drafted = draft(pending, tokens_max);
    const std::int64_t drafted_at_ns = monotonic_ns();
    const double predicted = depth_->acceptance().tokens_per_pass(drafted);
    Status status = verify(pass_tokens_, drafted);
    if (status == Status::NotFinite && drafted > 0) {
        // A drafted token may have led where no text goes; without it the pass may be sound.
        status = verify(std::span(pass_tokens_).first(pending), 0);
    }
    if (status != Status::Ok) {
        return status;
    }
    const std::int64_t ended_at_ns = monotonic_ns();
    const std::size_t accepted = newest().size() - 1;
    depth_->note(static_cast<std::uint32_t>(drafted), static_cast<std::uint32_t>(accepted));
    if (pending == 1) {
        depth_->note_cost(static_cast<std::uint32_t>(drafted), static_cast<double>(ended_at_ns - started_at_ns));
    }
    ++counts_.passes;
    counts_.tokens += newest().size();
    counts_.drafted += drafted;
    counts_.accepted += accepted;
    counts_.rejections += accepted < drafted ? 1 : 0;
    counts_.predicted_tokens += predicted;
    counts_.draft_ns += drafted_at_ns - started_at_ns;
    counts_.verify_ns += ended_at_ns - drafted_at_ns;
    return Status::Ok;
}

Status Speculation::verify(std::span<const std::uint32_t> tokens, std::size_t drafted) noexcept {
    Status status = target_.run(tokens, drafted + 1);
    if (status != Status::Ok) {
        return status;
    }
    const std::span<const std::uint32_t> guesses = tokens.last(drafted);
    std::size_t accepted = 0;
    while (true) {
        std::uint32_t chosen = 0;
        status =
            sampler_.choose(target_.logits(accepted), context_, static_cast<std::uint32_t>(context_.size()), chosen);
        if (status != Status::Ok) {
            break;
        }
        context_.push_back(chosen);
        if (accepted == drafted || guesses[accepted] != chosen) {
            break;
        }
        ++accepted;
    }
    if (newest().empty()) {
        return status;
    }
    // A logit that is no number behind accepted tokens is met again by the next pass, which then has no token to give.
    target_.keep(tokens.first(tokens.size() - drafted + std::min(accepted, newest().size() - 1)));
    return Status::Ok;
}

void Speculation::cut(std::size_t length) noexcept {
    if (length > 0 && length < context_.size()) {
        context_.resize(length);
        newest_begin_ = std::min(newest_begin_, length);
        target_.cache().truncate(std::min(length - 1, target_.cache().length()));  // the newest is not in it
    }
}

}  // namespace perceptd::generate

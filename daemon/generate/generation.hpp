// One answer as it is made: tokens with numbers, text in whole characters, and one reason for its end. Owns the loop
// and what is held back of the text. Never gives out a token twice or out of order, never runs on after its end.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "generate/answer_text.hpp"
#include "generate/headroom.hpp"
#include "generate/speculation.hpp"

namespace perceptd::generate {

struct GenerationOptions {
    SamplerOptions sampling;
    std::size_t tokens_max = 256;
    std::vector<std::string> stops;
    bool continues_text = false;  ///< the prompt is a text that goes on, not a question with marks of its own
};

/// What one pass added. The token that ends the text is one of `tokens` and none of `text`.
struct Piece {
    std::uint64_t first_number = 0;         ///< of tokens[0]; the first token of a generation is 0
    std::span<const std::uint32_t> tokens;  ///< valid until the next step()
    std::string text;                       ///< UTF-8, may lag behind the tokens until the end
    std::vector<std::size_t> text_ends;  ///< for each token, how much of `text` is sure with it; the rest is the end's
    FinishReason finish = FinishReason::None;
    std::optional<HeadroomLevel> headroom_reached;
};

/// Thread-bound but for cancel(). Borrows vocabulary, drafter and depth; a depth that lives on has learnt for the next
/// one.
class Generation {
public:
    /// Throws what Speculation and StopStrings throw, and Error(QuotaExceeded) with limit and used when prompt
    /// and `tokens_max` together are more than the sequence holds: an answer is never cut by surprise. `answered` are
    /// the first tokens of the answer, when an earlier generation of the same options was cut short behind them: this
    /// one goes on as that one would have.
    Generation(const model::Vocabulary& vocabulary, DecoderSequence target, Drafter& drafter, Depth& depth,
               const GenerationOptions& options, std::span<const std::uint32_t> prompt,
               std::span<const std::uint32_t> answered = {});

    /// What an earlier generation had given, with its text, and the end if that was all.
    [[nodiscard]] Piece replay();
    /// One pass; nothing once it has finished. Allocates for the text.
    [[nodiscard]] Piece step();
    /// Ends it before the next pass. Any thread, async-signal-safe.
    void cancel() noexcept { is_cancelled_.store(true, std::memory_order_relaxed); }

    [[nodiscard]] FinishReason finish() const noexcept { return finish_; }
    [[nodiscard]] Status status() const noexcept { return status_; }
    [[nodiscard]] const SpeculationCounts& counts() const noexcept { return speculation_.counts(); }
    [[nodiscard]] Headroom headroom() const noexcept { return speculation_.headroom(); }
    /// Prompt and answer, for the next turn.
    [[nodiscard]] std::span<const std::uint32_t> context() const noexcept { return speculation_.context(); }
    [[nodiscard]] std::uint64_t token_count() const noexcept { return context().size() - prompt_tokens_; }

private:
    void take(std::uint32_t token, Piece& piece);
    void finish(Piece& piece);

    Speculation speculation_;
    AnswerText text_;
    HeadroomWatch headroom_watch_;
    std::size_t prompt_tokens_;
    std::size_t tokens_max_;
    std::size_t answered_tokens_;
    std::atomic<bool> is_cancelled_{false};
    FinishReason finish_ = FinishReason::None;
    Status status_ = Status::Ok;
};

}  // namespace perceptd::generate

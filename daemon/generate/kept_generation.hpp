// A generation of which each token is written down before anybody is told of it. Owns loop, drafter and its hold on the
// journal. Never tells a token that it could not write down: the answer then ends with the reason.
#pragma once

#include <memory>

#include "generate/answer_log.hpp"
#include "generate/question.hpp"
#include "generate/served_model.hpp"
#include "store/store.hpp"

namespace perceptd::generate {

/// Thread-bound but for the log.
class KeptGeneration {
public:
    /// Goes on behind `turn`'s tokens; writes into `log` what there is. Throws what Generation and Store::begin()
    /// throw, and Error(Unsupported) when the model is not the one that the turn began with.
    KeptGeneration(store::Store& store, std::shared_ptr<ServedModel> model, const store::StoredTurn& turn,
                   const Question& question, std::shared_ptr<AnswerLog> log);
    /// What has not ended is interrupted: it stays in the store as it is.
    ~KeptGeneration();
    KeptGeneration(const KeptGeneration&) = delete;
    KeptGeneration& operator=(const KeptGeneration&) = delete;

    /// One pass. False: it is over.
    bool step() noexcept;
    /// Ends it with the next step.
    void cancel() noexcept { generation_->cancel(); }
    /// Tokens made by this object.
    [[nodiscard]] std::uint64_t made_tokens() const noexcept { return generation_->token_count() - answered_tokens_; }
    [[nodiscard]] const AnswerLog& log() const noexcept { return *log_; }
    [[nodiscard]] Headroom headroom() const noexcept { return generation_->headroom(); }

private:
    void close() noexcept;

    store::Store* store_;
    std::shared_ptr<ServedModel> model_;
    std::uint64_t answered_tokens_;
    std::unique_ptr<Drafter> drafter_;
    Depth depth_;
    std::unique_ptr<Generation> generation_;
    std::shared_ptr<AnswerLog> log_;
    std::shared_ptr<store::Journal> journal_;  ///< null: it has ended
};

/// A finished turn as it was told. `words` is the vocabulary of its model.
[[nodiscard]] std::shared_ptr<AnswerLog> told_again(const model::Vocabulary& words, const store::StoredTurn& turn,
                                                    const Question& question);

}  // namespace perceptd::generate

#include "generate/kept_generation.hpp"

#include <exception>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "generate/lookup_drafter.hpp"
#include "generate/model_drafter.hpp"

namespace perceptd::generate {
namespace {

KvClient client_of(std::uint32_t uid) {
    return std::uint64_t{uid} + 1;
}

std::unique_ptr<Drafter> make_drafter(ServedModel& model, std::uint32_t uid, const SamplerOptions& sampling) {
    if (model.draft) {
        return std::make_unique<ModelDrafter>(model.draft->decoder(), model.draft->cache(), client_of(uid), sampling);
    }
    return std::make_unique<LookupDrafter>();
}

}  // namespace

KeptGeneration::KeptGeneration(store::Store& store, std::shared_ptr<ServedModel> model, const store::StoredTurn& turn,
                               const Question& question, std::shared_ptr<AnswerLog> log)
    : store_(&store), model_(std::move(model)), answered_tokens_(turn.tokens.size()), log_(std::move(log)) {
    const store::TurnStart& start = turn.start;
    if (start.model_digest != model_->digest) {
        throw Error(ErrorCode::Unsupported, "the model " + start.model +
                                                " is another one now than the answer began with, and would go on "
                                                "differently; bring the old one back, or ask again");
    }
    drafter_ = make_drafter(*model_, start.uid, question.options.sampling);
    TextModel& target = *model_->target;
    generation_ = std::make_unique<Generation>(target.tokenizer().vocabulary(),
                                               target.open(client_of(start.uid), target.context_tokens_max()),
                                               *drafter_, depth_, question.options, start.prompt, turn.tokens);
    const Piece known = generation_->replay();
    journal_ = store_->begin(start, turn.tokens.size());
    log_->append(known, generation_->headroom());
    if (known.finish != FinishReason::None) {
        close();
    }
}

KeptGeneration::~KeptGeneration() {
    if (journal_) {
        log_->end(FinishReason::Interrupted, {});
        try {
            store_->close(std::exchange(journal_, nullptr));
        } catch (const std::exception& error) {
            log::error("generate", error.what());
        }
    }
}

void KeptGeneration::close() noexcept {
    try {
        const std::shared_ptr<store::Journal> journal = std::exchange(journal_, nullptr);
        try {
            journal->finish(name_of(log_->finish()));
        } catch (const std::exception& error) {
            log::warning("generate", std::string("an answer's end was not written down: ") + error.what());
        }
        store_->close(journal);
    } catch (const std::exception& error) {
        log::error("generate", error.what());
    }
}

bool KeptGeneration::step() noexcept {
    if (!journal_) {
        return false;
    }
    try {
        const Piece piece = generation_->step();
        if (!piece.tokens.empty()) {
            journal_->append(piece.tokens);
            store_->written(journal_);
        }
        log_->append(piece, generation_->headroom());
        if (generation_->finish() == FinishReason::Failed) {
            log::warning("generate", std::string("a pass failed: ") + name_of(generation_->status()));
        }
        if (piece.finish == FinishReason::None) {
            return true;
        }
    } catch (const std::exception& error) {
        log_->end(FinishReason::Interrupted,
                  std::string("the answer cannot be kept: ") + error.what() + "; resume it when that is mended");
        log::error("generate", error.what());
        try {
            store_->close(std::exchange(journal_, nullptr));
        } catch (const std::exception& failure) {
            log::error("generate", failure.what());
        }
        return false;
    }
    close();
    return false;
}

std::shared_ptr<AnswerLog> told_again(const model::Vocabulary& words, const store::StoredTurn& turn,
                                      const Question& question) {
    AnswerText text(words, question.options.stops, question.options.continues_text);
    Piece piece{.tokens = turn.tokens, .finish = finish_reason_of(turn.finish)};
    for (const std::uint32_t token : turn.tokens) {
        if (!words.contains(static_cast<model::TokenId>(token))) {
            throw Error(ErrorCode::Internal, "the kept answer has tokens that its model does not have; delete it");
        }
        piece.text += text.take(token);
        piece.text_ends.push_back(piece.text.size());
    }
    piece.text += text.finish();
    auto log = std::make_shared<AnswerLog>();
    log->append(piece, {turn.start.prompt.size() + turn.tokens.size(), std::nullopt});
    return log;
}

}  // namespace perceptd::generate

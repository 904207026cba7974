// The file is read twice, for the words and for the weights; both times the same checked readers.
#include "generate/text_model.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "model/gguf.hpp"

namespace perceptd::generate {
namespace {

model::Tokenizer read_tokenizer(const std::string& path) {
    const model::ModelFile file = model::ModelFile::open(path, model::Backing::Mapped);
    return model::Tokenizer(model::Vocabulary::from(model::Gguf::parse(file.bytes(), file.label())));
}

engine::DecoderRuntime read_decoder(const std::string& path, engine::WorkerTeam& team,
                                    const TextModelOptions& options) {
    return engine::DecoderRuntime::load(path, team,
                                        {.limits = {.tokens_max = static_cast<std::uint32_t>(options.batch_tokens_max),
                                                    .logit_rows_max = kDraftTokensMax + 1},
                                         .positions_max = static_cast<std::uint32_t>(options.context_tokens_max),
                                         .cache_folder = options.weight_folder});
}

/// What makes cached keys and values exchangeable: the same file.
model::Digest digest_of(const std::string& path) {
    return model::sha256_of(model::ModelFile::open(path, model::Backing::Mapped).bytes());
}

}  // namespace

TextModel::TextModel(const std::string& path, engine::WorkerTeam& team, const TextModelOptions& options)
    : tokenizer_(read_tokenizer(path)),
      decoder_(read_decoder(path, team, options)),
      context_tokens_max_(std::min<std::size_t>(options.context_tokens_max, decoder_.config().context_tokens)),
      batch_tokens_max_(options.batch_tokens_max) {
    const std::size_t words = tokenizer_.vocabulary().size();
    if (words != decoder_.config().vocabulary_size) {
        throw Error(ErrorCode::InvalidArgument,
                    path + ": " + std::to_string(words) + " tokens, but an embedding table of " +
                        std::to_string(decoder_.config().vocabulary_size) + " rows; the file is damaged");
    }
    const std::size_t pages = (options.cache_tokens + engine::kPagePositions - 1) / engine::kPagePositions;
    cache_ = std::make_unique<KvCache>(decoder_.kv_shape(), pages, digest_of(path));
}

DecoderSequence TextModel::open(KvClient client, std::size_t capacity_tokens) {
    if (capacity_tokens > context_tokens_max_) {
        Error error(ErrorCode::QuotaExceeded, "a sequence of " + std::to_string(capacity_tokens) +
                                                  " tokens for a context of " + std::to_string(context_tokens_max_) +
                                                  "; shorten the prompt or ask for a shorter answer");
        error.limit = context_tokens_max_;
        error.used = capacity_tokens;
        throw error;
    }
    return {decoder_, cache_->open(client, capacity_tokens), batch_tokens_max_};
}

void require_same_vocabulary(const TextModel& target, const TextModel& draft) {
    if (const auto difference =
            model::first_difference(target.tokenizer().vocabulary(), draft.tokenizer().vocabulary())) {
        throw Error(ErrorCode::Unsupported, "the draft has another vocabulary: " + difference->text);
    }
}

}  // namespace perceptd::generate

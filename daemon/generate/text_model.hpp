// A decoder with its tokenizer and its cache: all that a generation needs of a model file. Owns the three; borrows the
// worker team. Never pairs models whose token ids mean different things.
#pragma once

#include <memory>
#include <string>

#include "engine/decoder_runtime.hpp"
#include "generate/decoder_sequence.hpp"
#include "generate/drafter.hpp"
#include "generate/kv_cache.hpp"
#include "model/tokenizer.hpp"

namespace perceptd::generate {

struct TextModelOptions {
    std::size_t context_tokens_max = 2048;  ///< at most the model's own
    std::size_t batch_tokens_max = 512;
    std::size_t cache_tokens = 4096;  ///< of all sequences and kept prefixes together
    std::string weight_folder;        ///< for packed weights; empty: pack at every load
};

/// Thread-bound; sequences end before it.
class TextModel {
public:
    /// Throws what DecoderRuntime::load() and Vocabulary::from() throw, and Error(InvalidArgument) when embedding table
    /// and vocabulary differ in size.
    TextModel(const std::string& path, engine::WorkerTeam& team, const TextModelOptions& options = {});

    /// A sequence for one generation. Throws Error(QuotaExceeded) beyond the context or what the cache has left.
    [[nodiscard]] DecoderSequence open(KvClient client, std::size_t capacity_tokens);

    [[nodiscard]] const model::Tokenizer& tokenizer() const noexcept { return tokenizer_; }
    [[nodiscard]] engine::DecoderRuntime& decoder() noexcept { return decoder_; }
    [[nodiscard]] KvCache& cache() noexcept { return *cache_; }
    [[nodiscard]] std::size_t context_tokens_max() const noexcept { return context_tokens_max_; }
    [[nodiscard]] std::size_t batch_tokens_max() const noexcept { return batch_tokens_max_; }

private:
    model::Tokenizer tokenizer_;
    engine::DecoderRuntime decoder_;
    std::unique_ptr<KvCache> cache_;
    std::size_t context_tokens_max_;
    std::size_t batch_tokens_max_;
};

/// Throws Error(Unsupported), with the first token id that differs, when `draft` cannot draft for `target`.
void require_same_vocabulary(const TextModel& target, const TextModel& draft);

}  // namespace perceptd::generate

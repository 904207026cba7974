// The cache keeps what was drafted; where the target decided otherwise, the next call rolls it back.
#include "generate/model_drafter.hpp"

#include <algorithm>

namespace perceptd::generate {

ModelDrafter::ModelDrafter(engine::DecoderRuntime& decoder, KvCache& cache, KvClient client,
                           const SamplerOptions& sampling, ModelDrafterLimits limits)
    : decoder_(&decoder),
      cache_(&cache),
      client_(client),
      sampler_(sampling, decoder.config().vocabulary_size),
      limits_(limits) {
    limits_.context_tokens_max = std::min<std::size_t>(limits_.context_tokens_max, decoder.config().context_tokens);
    history_.reserve(sampling.repetition_window + kDraftTokensMax);
}

void ModelDrafter::begin(std::size_t tokens_max) {
    sequence_.reset();  // its pages stay known to the cache
    agreed_ = 0;
    sequence_.emplace(*decoder_, cache_->open(client_, std::min(limits_.context_tokens_max, tokens_max)),
                      limits_.batch_tokens_max);
}

Status ModelDrafter::catch_up(std::span<const std::uint32_t> context) noexcept {
    KvSequence& cache = sequence_->cache();
    if (cache.length() == 0) {
        cache.reuse(context);
    }
    const std::span<const std::uint32_t> held = cache.tokens();
    std::size_t same = std::min(agreed_, held.size());
    while (same < std::min(held.size(), context.size() - 1) && held[same] == context[same]) {
        ++same;
    }
    same = std::min(same, context.size() - 1);
    cache.truncate(same);
    agreed_ = context.size();
    Status status = Status::Ok;
    while (status == Status::Ok && cache.length() < context.size()) {
        const std::size_t count = std::min(limits_.batch_tokens_max, context.size() - cache.length());
        const auto tokens = context.subspan(cache.length(), count);
        status = sequence_->run(tokens, cache.length() + count == context.size() ? 1 : 0);
        if (status == Status::Ok) {
            sequence_->keep(tokens);
        }
    }
    return status;
}

std::size_t ModelDrafter::draft(std::span<const std::uint32_t> context, std::span<std::uint32_t> drafted) noexcept {
    const std::size_t capacity = sequence_->cache().capacity();
    if (context.empty() || drafted.empty() || context.size() > capacity) {
        beyond_context_count_ += context.size() > capacity ? 1 : 0;
        return 0;
    }
    const std::size_t wanted = std::min(drafted.size(), capacity - context.size() + 1);
    const std::size_t window = std::min<std::size_t>(context.size(), sampler_.options().repetition_window);
    history_.assign(context.end() - static_cast<std::ptrdiff_t>(window), context.end());
    Status status = catch_up(context);
    std::size_t count = 0;
    while (status == Status::Ok) {
        status = sampler_.choose(sequence_->logits(0), history_, static_cast<std::uint32_t>(context.size() + count),
                                 drafted[count]);
        if (status != Status::Ok || ++count == wanted) {
            break;
        }
        const auto newest = drafted.subspan(count - 1, 1);
        history_.push_back(newest[0]);
        status = sequence_->run(newest, 1);
        if (status == Status::Ok) {
            sequence_->keep(newest);
        }
    }
    failed_count_ += status != Status::Ok ? 1 : 0;
    return count;
}

}  // namespace perceptd::generate

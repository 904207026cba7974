// A small decoder with the target's vocabulary drafts: it samples from its own logits with the same chain and the same
// noise as the target, so the two agree wherever their distributions do. Owns its cache; borrows the decoder. Never
// drafts beyond its own context: from there on it gives nothing, and the counter says so.
#pragma once

#include <optional>
#include <vector>

#include "generate/decoder_sequence.hpp"
#include "generate/drafter.hpp"
#include "generate/sampler.hpp"

namespace perceptd::generate {

struct ModelDrafterLimits {
    std::size_t context_tokens_max = 2048;
    std::size_t batch_tokens_max = 512;  ///< of its reading of the prompt; the decoder must be planned for it
};

/// Thread-bound with its decoder and cache. The vocabularies must be the same (model/vocabulary.hpp,
/// first_difference()).
class ModelDrafter final : public Drafter {
public:
    /// `sampling` is the target's. Throws Error(InvalidArgument) for options out of range.
    ModelDrafter(engine::DecoderRuntime& decoder, KvCache& cache, KvClient client, const SamplerOptions& sampling,
                 ModelDrafterLimits limits = {});

    /// Throws Error(QuotaExceeded) when its cache has no room.
    void begin(std::size_t tokens_max) override;
    [[nodiscard]] std::size_t draft(std::span<const std::uint32_t> context,
                                    std::span<std::uint32_t> drafted) noexcept override;

    /// Times that nothing was drafted because the text had outgrown the context.
    [[nodiscard]] std::uint64_t beyond_context_count() const noexcept { return beyond_context_count_; }
    /// Passes that failed (a weight that is no number); the text does not depend on it.
    [[nodiscard]] std::uint64_t failed_count() const noexcept { return failed_count_; }

private:
    [[nodiscard]] Status catch_up(std::span<const std::uint32_t> context) noexcept;

    engine::DecoderRuntime* decoder_;
    KvCache* cache_;
    KvClient client_;
    Sampler sampler_;
    ModelDrafterLimits limits_;
    std::optional<DecoderSequence> sequence_;
    std::vector<std::uint32_t> history_;  // the end of the context and what was drafted behind it
    std::size_t agreed_ = 0;              // so many first tokens of cache and context were compared before
    std::uint64_t beyond_context_count_ = 0;
    std::uint64_t failed_count_ = 0;
};

}  // namespace perceptd::generate

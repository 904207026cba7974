// The speculative loop: draft, verify the draft in one pass of the target, accept what the target would have said
// itself, add the target's next token. Owns the target's sequence and the confirmed text. Never emits a token that the
// target did not choose: with the same noise for every pass the text does not depend on draft, depth or batch.
#pragma once

#include <cstdint>
#include <vector>

#include "generate/decoder_sequence.hpp"
#include "generate/depth.hpp"
#include "generate/drafter.hpp"
#include "generate/sampler.hpp"

namespace perceptd::generate {

struct SpeculationCounts {
    std::uint64_t prompt_passes = 0;  ///< that read a part of the prompt and gave no token
    std::uint64_t passes = 0;         ///< that gave tokens
    std::uint64_t tokens = 0;
    std::uint64_t drafted = 0;
    std::uint64_t accepted = 0;
    std::uint64_t rejections = 0;  ///< passes that rejected a token; those behind it nobody judged
    double predicted_tokens = 0;   ///< what the acceptance estimate said before each pass
    std::int64_t draft_ns = 0;
    std::int64_t verify_ns = 0;

    [[nodiscard]] double tokens_per_pass() const noexcept {
        return passes == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(passes);
    }
    /// Of the drafted tokens that were judged, the share that was right; 0 when none was.
    [[nodiscard]] double acceptance() const noexcept {
        const auto judged = static_cast<double>(accepted + rejections);
        return judged == 0 ? 0 : static_cast<double>(accepted) / judged;
    }
};

/// Thread-bound. step() is real-time: no allocation, no lock.
class Speculation {
public:
    /// Begins behind `prompt`, with the pages that the cache knows of it. `drafter` and `depth` outlive this object.
    /// Throws Error(InvalidArgument) for an empty prompt, an id beyond the vocabulary, sampler options out of range;
    /// Error(QuotaExceeded) when the prompt is longer than the sequence may be.
    Speculation(DecoderSequence target, const SamplerOptions& sampling, Drafter& drafter, Depth& depth,
                std::span<const std::uint32_t> prompt);

    /// One pass. At most `tokens_max` > 0 tokens become new(); none while the prompt is still being read. Full: the
    /// sequence has no room for the newest token. NotFinite, Invalid, Ended: what executor or sampler said; the text
    /// is as before, and would have ended here without any draft too.
    [[nodiscard]] Status step(std::size_t tokens_max) noexcept;
    /// Tokens of the last step().
    [[nodiscard]] std::span<const std::uint32_t> newest() const noexcept {
        return std::span(context_).subspan(newest_begin_);
    }
    /// Prompt and all confirmed tokens.
    [[nodiscard]] std::span<const std::uint32_t> context() const noexcept { return context_; }
    /// The text ends after `length` > 0 tokens: what the last pass gave beyond is forgotten.
    void cut(std::size_t length) noexcept;

    [[nodiscard]] const SpeculationCounts& counts() const noexcept { return counts_; }
    [[nodiscard]] Headroom headroom() const noexcept { return {context_.size(), target_.cache().capacity()}; }

private:
    [[nodiscard]] Status verify(std::span<const std::uint32_t> tokens, std::size_t drafted) noexcept;
    [[nodiscard]] std::size_t draft(std::size_t pending, std::size_t tokens_max) noexcept;

    DecoderSequence target_;
    Sampler sampler_;
    Drafter* drafter_;
    Depth* depth_;
    std::vector<std::uint32_t> context_;
    std::vector<std::uint32_t> pass_tokens_;
    std::size_t newest_begin_ = 0;
    SpeculationCounts counts_;
};

}  // namespace perceptd::generate

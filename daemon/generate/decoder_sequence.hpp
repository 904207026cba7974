// One sequence running through one decoder: a pass over some tokens behind what the cache holds. Owns the sequence's
// cache pages; borrows the decoder, which other sequences use between passes. Never keeps a position whose token was
// not confirmed: run() leaves the pass open, keep() says how much of it counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "engine/decoder_runtime.hpp"
#include "generate/kv_sequence.hpp"

namespace perceptd::generate {

/// Thread-bound, like the decoder. run() and keep() are real-time.
class DecoderSequence {
public:
    /// `batch_tokens_max`, at most what the decoder was planned for, bounds one pass.
    DecoderSequence(engine::DecoderRuntime& decoder, KvSequence sequence, std::size_t batch_tokens_max);

    /// One pass over `tokens` (at most batch_tokens_max) with logits for the last `logit_rows` of them. Full: no room
    /// in the sequence. Otherwise what Executor::run() says.
    [[nodiscard]] Status run(std::span<const std::uint32_t> tokens, std::size_t logit_rows) noexcept;
    /// The first `tokens` of the last pass stay in the cache, the rest of it is rolled back.
    void keep(std::span<const std::uint32_t> tokens) noexcept;
    /// Logits of row `row` of the last pass; valid until anybody runs the decoder again.
    [[nodiscard]] std::span<const float> logits(std::size_t row) const noexcept;

    [[nodiscard]] KvSequence& cache() noexcept { return sequence_; }
    [[nodiscard]] const KvSequence& cache() const noexcept { return sequence_; }
    [[nodiscard]] std::size_t batch_tokens_max() const noexcept { return batch_tokens_max_; }
    [[nodiscard]] const model::DecoderConfig& config() const noexcept { return decoder_->config(); }

private:
    engine::DecoderRuntime* decoder_;
    KvSequence sequence_;
    std::size_t batch_tokens_max_;
    std::vector<std::uint32_t> rows_;
};

}  // namespace perceptd::generate

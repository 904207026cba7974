// Reserve, run, and append only what is confirmed: a rollback is then nothing but not appending.
#include "generate/decoder_sequence.hpp"

#include <numeric>
#include <utility>

namespace perceptd::generate {

DecoderSequence::DecoderSequence(engine::DecoderRuntime& decoder, KvSequence sequence, std::size_t batch_tokens_max)
    : decoder_(&decoder), sequence_(std::move(sequence)), batch_tokens_max_(batch_tokens_max) {
    rows_.resize(batch_tokens_max_);
}

Status DecoderSequence::run(std::span<const std::uint32_t> tokens, std::size_t logit_rows) noexcept {
    if (tokens.empty() || tokens.size() > batch_tokens_max_ || logit_rows > tokens.size()) {
        return Status::Invalid;
    }
    const Status room = sequence_.reserve(tokens.size());
    if (room != Status::Ok) {
        return room;
    }
    const std::span<std::uint32_t> rows = std::span(rows_).first(logit_rows);
    std::iota(rows.begin(), rows.end(), static_cast<std::uint32_t>(tokens.size() - logit_rows));
    return decoder_->executor().run({.token_ids = tokens,
                                     .first_position = static_cast<std::uint32_t>(sequence_.length()),
                                     .logit_rows = rows,
                                     .kv = sequence_.view()});
}

void DecoderSequence::keep(std::span<const std::uint32_t> tokens) noexcept {
    sequence_.append(tokens);
    sequence_.truncate(sequence_.length());
}

std::span<const float> DecoderSequence::logits(std::size_t row) const noexcept {
    return {decoder_->executor().logits().row(row), decoder_->config().vocabulary_size};
}

}  // namespace perceptd::generate

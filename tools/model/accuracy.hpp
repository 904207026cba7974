// How far the engine's logits are from exact arithmetic. Owns nothing. Never judges the engine by itself: the reference
// is computed in double by the plain formulas (reference_decoder.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "engine/kv_pages.hpp"
#include "token_sample.hpp"

namespace perceptd::model_tool {

struct AccuracyOptions {
    std::string model_path;
    /// Whose weights the reference has; empty: the same file, so that only the engine's arithmetic is judged. The
    /// file that was quantized: what quantizing costs in all.
    std::string reference_path;
    SampleOptions sample;
    engine::KvFormat kv_format = engine::KvFormat::F16;
};

/// Over all tokens of the sample. KL is of the reference's next-token distribution to the engine's, in nats.
struct Accuracy {
    std::uint64_t tokens = 0;
    double kl_mean = 0;
    double kl_p99 = 0;
    double kl_max = 0;
    double top1_agreement = 0;   ///< fraction of tokens whose most probable next token is the same
    double logit_error_rms = 0;  ///< after the mean of a token's differences is taken off
    double logit_rms = 0;        ///< of the reference's logits, likewise centred
    double perplexity = 0;       ///< the engine's on the text's own next tokens; means little for random ids
    double reference_perplexity = 0;
};

/// Throws Error for files that are no decoders or do not fit each other, std::system_error from the system.
[[nodiscard]] Accuracy measure_accuracy(const AccuracyOptions& options);

/// One JSON object, or a few lines for people.
[[nodiscard]] std::string accuracy_report(const AccuracyOptions& options, bool as_json);

}  // namespace perceptd::model_tool

// Sequence by sequence: the reference's logits, then the engine's, then what lies between.
#include "accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "engine/decoder_runtime.hpp"
#include "matrix_output.hpp"
#include "reference_decoder.hpp"

namespace perceptd::model_tool {
namespace {

constexpr std::uint32_t kPassTokens = 64;

/// The engine with one sequence's cache.
class Engine {
public:
    explicit Engine(const AccuracyOptions& options)
        : team_({.worker_count = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16)}),
          runtime_(engine::DecoderRuntime::load(options.model_path, team_,
                                                {.limits = {.tokens_max = kPassTokens, .logit_rows_max = kPassTokens},
                                                 .positions_max = options.sample.sequence,
                                                 .kv_format = options.kv_format})),
          pages_((options.sample.sequence + engine::kPagePositions - 1) / engine::kPagePositions),
          pool_(runtime_.kv_shape().page_bytes() * pages_.size()) {
        std::iota(pages_.begin(), pages_.end(), 0U);
    }

    [[nodiscard]] const model::DecoderConfig& config() const noexcept { return runtime_.config(); }

    /// Hands the logits of each token to `take(token, logits)`.
    template <typename Take>
    void run(const std::vector<std::uint32_t>& tokens, Take&& take) {
        const std::size_t vocabulary = config().vocabulary_size;
        std::vector<std::uint32_t> rows(kPassTokens);
        std::iota(rows.begin(), rows.end(), 0U);
        for (std::size_t at = 0; at < tokens.size(); at += kPassTokens) {
            const std::size_t count = std::min<std::size_t>(kPassTokens, tokens.size() - at);
            const engine::Pass pass{.token_ids = std::span(tokens).subspan(at, count),
                                    .first_position = static_cast<std::uint32_t>(at),
                                    .logit_rows = std::span(rows).first(count),
                                    .kv = {runtime_.kv_shape(), pool_.data(), pages_}};
            if (const Status status = runtime_.executor().run(pass); status != Status::Ok) {
                throw Error(ErrorCode::InvalidArgument, status == Status::NotFinite
                                                            ? "the model's activations are no numbers"
                                                            : "the engine refused a pass");
            }
            for (std::size_t i = 0; i < count; ++i) {
                take(at + i, std::span(runtime_.executor().logits().row(i), vocabulary));
            }
        }
    }

private:
    engine::WorkerTeam team_;
    engine::DecoderRuntime runtime_;
    std::vector<std::uint32_t> pages_;
    std::vector<std::byte> pool_;
};

double log_sum_of(const std::vector<double>& logits) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) {
        sum += std::exp(logit - top);
    }
    return top + std::log(sum);
}

double mean_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// What is added up over tokens.
class Comparison {
public:
    void add(const std::vector<double>& wanted, const std::vector<double>& found) {
        const double wanted_sum = log_sum_of(wanted);
        const double found_sum = log_sum_of(found);
        const double wanted_mean = mean_of(wanted);
        const double found_mean = mean_of(found);
        double kl = 0;
        for (std::size_t v = 0; v < wanted.size(); ++v) {
            kl += std::exp(wanted[v] - wanted_sum) * ((wanted[v] - wanted_sum) - (found[v] - found_sum));
            errors_ += std::pow((wanted[v] - wanted_mean) - (found[v] - found_mean), 2);
            squares_ += std::pow(wanted[v] - wanted_mean, 2);
        }
        kl_.push_back(std::max(kl, 0.0));
        logits_ += wanted.size();
        const auto best = [](const std::vector<double>& values) {
            return std::max_element(values.begin(), values.end()) - values.begin();
        };
        same_best_ += best(wanted) == best(found) ? 1 : 0;
    }
    void add_next(const std::vector<double>& wanted, const std::vector<double>& found, std::uint32_t next) {
        wanted_surprise_ += log_sum_of(wanted) - wanted[next];
        found_surprise_ += log_sum_of(found) - found[next];
        ++nexts_;
    }

    [[nodiscard]] Accuracy result() {
        std::sort(kl_.begin(), kl_.end());
        const auto count = static_cast<double>(kl_.size());
        const auto nexts = static_cast<double>(std::max<std::uint64_t>(nexts_, 1));
        return {.tokens = kl_.size(),
                .kl_mean = mean_of(kl_),
                .kl_p99 = kl_[static_cast<std::size_t>(std::ceil(0.99 * count)) - 1],
                .kl_max = kl_.back(),
                .top1_agreement = static_cast<double>(same_best_) / count,
                .logit_error_rms = std::sqrt(errors_ / static_cast<double>(logits_)),
                .logit_rms = std::sqrt(squares_ / static_cast<double>(logits_)),
                .perplexity = std::exp(found_surprise_ / nexts),
                .reference_perplexity = std::exp(wanted_surprise_ / nexts)};
    }

private:
    std::vector<double> kl_;
    std::uint64_t same_best_ = 0;
    std::uint64_t logits_ = 0;
    std::uint64_t nexts_ = 0;
    double errors_ = 0;
    double squares_ = 0;
    double wanted_surprise_ = 0;
    double found_surprise_ = 0;
};

model::DecoderFile reference_of(const AccuracyOptions& options) {
    const std::string& path = options.reference_path.empty() ? options.model_path : options.reference_path;
    return model::DecoderFile::read(model::ModelFile::open(path, model::Backing::Mapped));
}

}  // namespace

Accuracy measure_accuracy(const AccuracyOptions& options) {
    const model::DecoderFile reference = reference_of(options);
    const auto sequences = token_sample(reference, options.sample);
    Engine engine(options);
    const std::uint32_t vocabulary = reference.decoder.config.vocabulary_size;
    if (engine.config().vocabulary_size != vocabulary) {
        throw Error(ErrorCode::InvalidArgument, "the reference has " + std::to_string(vocabulary) +
                                                    " tokens in its vocabulary, the model " +
                                                    std::to_string(engine.config().vocabulary_size));
    }
    Comparison comparison;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
        const std::vector<std::uint32_t>& tokens = sequences[s];
        const Columns exact = reference_logits(reference.decoder, tokens);
        std::vector<double> wanted(vocabulary);
        engine.run(tokens, [&](std::size_t token, std::span<const float> logits) {
            for (std::size_t v = 0; v < vocabulary; ++v) {
                wanted[v] = exact.channel(v)[token];
            }
            const std::vector<double> found(logits.begin(), logits.end());
            comparison.add(wanted, found);
            if (token + 1 < tokens.size()) {
                comparison.add_next(wanted, found, tokens[token + 1]);
            }
        });
        show_progress(s + 1, sequences.size(), "of the sequences");
    }
    return comparison.result();
}

std::string accuracy_report(const AccuracyOptions& options, bool as_json) {
    const Accuracy found = measure_accuracy(options);
    if (as_json) {
        const nlohmann::ordered_json report{
            {"model", options.model_path},
            {"reference", options.reference_path.empty() ? options.model_path : options.reference_path},
            {"text", !options.sample.text_path.empty()},
            {"tokens", found.tokens},
            {"kl_mean_nats", found.kl_mean},
            {"kl_p99_nats", found.kl_p99},
            {"kl_max_nats", found.kl_max},
            {"top1_agreement", found.top1_agreement},
            {"logit_error_rms", found.logit_error_rms},
            {"logit_rms", found.logit_rms},
            {"perplexity", found.perplexity},
            {"reference_perplexity", found.reference_perplexity}};
        return report.dump() + "\n";
    }
    char text[512];
    std::snprintf(text, sizeof(text),
                  "%llu tokens\nKL of next-token distributions, nats: mean %.3g, p99 %.3g, most %.3g\n"
                  "same most probable token: %.1f %%\nerror of logits, rms: %.3g of %.3g\nperplexity %.3f, reference "
                  "%.3f\n",
                  static_cast<unsigned long long>(found.tokens), found.kl_mean, found.kl_p99, found.kl_max,
                  100 * found.top1_agreement, found.logit_error_rms, found.logit_rms, found.perplexity,
                  found.reference_perplexity);
    return text;
}

}  // namespace perceptd::model_tool

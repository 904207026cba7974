// Channel by channel over all tokens at once, so that a weight row is decoded once.
#include "reference_decoder.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.hpp"

namespace perceptd::model_tool {
namespace {

/// Calls `body(i)` for 0 <= i < count on all processors.
template <typename Body>
void for_each_index(std::size_t count, Body&& body) {
    const std::size_t thread_count = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < thread_count; ++t) {
        threads.emplace_back([&, t] {
            for (std::size_t i = count * t / thread_count; i < count * (t + 1) / thread_count; ++i) {
                body(i);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

std::vector<double> decoded(const model::WeightMatrix& matrix, std::uint64_t row) {
    std::vector<float> values(matrix.columns);
    model::decode_row(matrix, row, values);
    return {values.begin(), values.end()};
}

class Reference {
public:
    Reference(const model::Decoder& decoder, std::span<const std::uint32_t> tokens, const InputWatch& watch)
        : decoder_(decoder), config_(decoder.config), tokens_(tokens), watch_(watch) {}

    Columns run() {
        Columns x = embedded();
        for (const model::LayerWeights& layer : decoder_.layers) {
            const Columns n = normalized(x, layer.attention_norm);
            Columns query = product(layer.query, n, layer.query_bias);
            Columns key = product(layer.key, n, layer.key_bias);
            const Columns value = product(layer.value, n, layer.value_bias);
            rotate(query, config_.head_count);
            rotate(key, config_.kv_head_count);
            add(x, product(layer.attention_output, attended(query, key, value)));
            const Columns m = normalized(x, layer.feed_forward_norm);
            Columns gate = product(layer.gate, m);
            const Columns up = product(layer.up, m);
            for (std::size_t i = 0; i < gate.values.size(); ++i) {
                const double g = gate.values[i];
                gate.values[i] = g / (1.0 + std::exp(-g)) * up.values[i];
            }
            add(x, product(layer.down, gate));
        }
        return product(decoder_.output, normalized(x, decoder_.output_norm));
    }

private:
    Columns embedded() const {
        Columns x(config_.width, tokens_.size());
        for (std::size_t t = 0; t < tokens_.size(); ++t) {
            if (tokens_[t] >= config_.vocabulary_size) {
                throw Error(ErrorCode::InvalidArgument, "token " + std::to_string(tokens_[t]) +
                                                            " is beyond the vocabulary of " +
                                                            std::to_string(config_.vocabulary_size));
            }
            const std::vector<double> row = decoded(decoder_.token_embedding, tokens_[t]);
            for (std::size_t c = 0; c < x.width; ++c) {
                x.channel(c)[t] = row[c];
            }
        }
        return x;
    }

    Columns product(const model::WeightMatrix& matrix, const Columns& x, const model::WeightMatrix& bias = {}) const {
        if (watch_) {
            watch_(matrix, x);
        }
        const std::vector<double> offsets = bias.rows > 0 ? decoded(bias, 0) : std::vector<double>(matrix.rows, 0.0);
        Columns y(matrix.rows, x.tokens);
        for_each_index(matrix.rows, [&](std::size_t r) {
            const std::vector<double> weights = decoded(matrix, r);
            double* const sums = y.channel(r);
            for (std::size_t c = 0; c < x.width; ++c) {
                const double weight = weights[c];
                const double* const inputs = x.channel(c);
                for (std::size_t t = 0; t < x.tokens; ++t) {
                    sums[t] += weight * inputs[t];
                }
            }
            for (std::size_t t = 0; t < x.tokens; ++t) {
                sums[t] += offsets[r];
            }
        });
        return y;
    }

    Columns normalized(const Columns& x, const model::WeightMatrix& norm) const {
        const std::vector<double> weights = decoded(norm, 0);
        Columns y(x.width, x.tokens);
        for (std::size_t t = 0; t < x.tokens; ++t) {
            double squares = 0;
            for (std::size_t c = 0; c < x.width; ++c) {
                squares += x.channel(c)[t] * x.channel(c)[t];
            }
            const double factor =
                1.0 / std::sqrt(squares / static_cast<double>(x.width) + static_cast<double>(config_.norm_epsilon));
            for (std::size_t c = 0; c < x.width; ++c) {
                y.channel(c)[t] = x.channel(c)[t] * factor * weights[c];
            }
        }
        return y;
    }

    void rotate(Columns& heads, std::size_t head_count) const {
        const model::Rope& rope = config_.rope;
        const std::size_t half = rope.dimension_count / 2;
        const bool neighbours = rope.pairs == model::RopePairs::Neighbours;
        for (std::size_t i = 0; i < half; ++i) {
            double frequency = std::pow(static_cast<double>(rope.theta), -static_cast<double>(i) / double(half));
            if (rope.scaling == model::RopeScaling::Linear) {
                frequency /= static_cast<double>(rope.factor);
            } else if (rope.scaling == model::RopeScaling::Factors) {
                frequency /= static_cast<double>(rope.frequency_factors[i]);
            }
            for (std::size_t head = 0; head < head_count; ++head) {
                const std::size_t first = head * config_.head_dim;
                double* const a = heads.channel(first + (neighbours ? 2 * i : i));
                double* const b = heads.channel(first + (neighbours ? 2 * i + 1 : i + half));
                for (std::size_t t = 0; t < heads.tokens; ++t) {
                    const double angle = static_cast<double>(t) * frequency;
                    const double turned = a[t] * std::cos(angle) - b[t] * std::sin(angle);
                    b[t] = a[t] * std::sin(angle) + b[t] * std::cos(angle);
                    a[t] = turned;
                }
            }
        }
    }

    Columns attended(const Columns& query, const Columns& key, const Columns& value) const {
        Columns out(query.width, query.tokens);
        const std::size_t dim = config_.head_dim;
        for_each_index(config_.head_count, [&](std::size_t head) {
            const std::size_t q = head * dim;
            const std::size_t kv = head / (config_.head_count / config_.kv_head_count) * dim;
            std::vector<double> scores(query.tokens);
            for (std::size_t t = 0; t < query.tokens; ++t) {
                double top = -HUGE_VAL;
                for (std::size_t p = 0; p <= t; ++p) {
                    double score = 0;
                    for (std::size_t i = 0; i < dim; ++i) {
                        score += query.channel(q + i)[t] * key.channel(kv + i)[p];
                    }
                    scores[p] = score / std::sqrt(static_cast<double>(dim));
                    top = std::max(top, scores[p]);
                }
                double sum = 0;
                for (std::size_t p = 0; p <= t; ++p) {
                    scores[p] = std::exp(scores[p] - top);
                    sum += scores[p];
                }
                for (std::size_t i = 0; i < dim; ++i) {
                    double mixed = 0;
                    for (std::size_t p = 0; p <= t; ++p) {
                        mixed += scores[p] / sum * value.channel(kv + i)[p];
                    }
                    out.channel(q + i)[t] = mixed;
                }
            }
        });
        return out;
    }

    static void add(Columns& x, const Columns& change) {
        std::transform(x.values.begin(), x.values.end(), change.values.begin(), x.values.begin(), std::plus<>());
    }

    const model::Decoder& decoder_;
    const model::DecoderConfig& config_;
    std::span<const std::uint32_t> tokens_;
    const InputWatch& watch_;
};

}  // namespace

Columns reference_logits(const model::Decoder& decoder, std::span<const std::uint32_t> tokens,
                         const InputWatch& watch) {
    return Reference(decoder, tokens, watch).run();
}

}  // namespace perceptd::model_tool

#include "smoothing.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace perceptd::model_tool {
namespace {

using model::WeightMatrix;

/// Raises largest[c] to the largest magnitude of column c.
void raise_to_weights(const WeightMatrix& matrix, std::vector<double>& largest) {
    std::vector<float> row(matrix.columns);
    for (std::uint64_t r = 0; r < matrix.rows; ++r) {
        model::decode_row(matrix, r, row);
        for (std::size_t c = 0; c < row.size(); ++c) {
            largest[c] = std::max(largest[c], std::abs(static_cast<double>(row[c])));
        }
    }
}

/// The largest activations and weights of the channels that some matrices share.
struct Channels {
    std::vector<double> activations;
    std::vector<double> weights;

    Channels(const Calibration& calibration, std::initializer_list<const WeightMatrix*> matrices) {
        for (const WeightMatrix* matrix : matrices) {
            activations.resize(matrix->columns);
            weights.resize(matrix->columns);
            const auto largest = calibration.largest(matrix->name, matrix->columns);
            if (largest.empty()) {
                throw Error(ErrorCode::InvalidArgument,
                            "the calibration says nothing of " + std::string(matrix->name) +
                                "; make one with perceptd-model calibrate from the same model");
            }
            for (std::size_t c = 0; c < largest.size(); ++c) {
                activations[c] = std::max(activations[c], static_cast<double>(largest[c]));
            }
            raise_to_weights(*matrix, weights);
        }
    }

    /// Channel c becomes the largest of its `heads`, which are `dimension` apart.
    void join_heads(std::size_t heads, std::size_t dimension) {
        for (std::vector<double>* values : {&activations, &weights}) {
            for (std::size_t first = 0; first < values->size(); first += heads * dimension) {
                for (std::size_t i = 0; i < dimension; ++i) {
                    double most = 0;
                    for (std::size_t head = 0; head < heads; ++head) {
                        most = std::max(most, (*values)[first + head * dimension + i]);
                    }
                    for (std::size_t head = 0; head < heads; ++head) {
                        (*values)[first + head * dimension + i] = most;
                    }
                }
            }
        }
    }

    [[nodiscard]] std::vector<float> factors(double strength) const {
        constexpr int kMostExponent = 12;
        std::vector<float> result(activations.size(), 1.0F);
        for (std::size_t c = 0; c < result.size(); ++c) {
            if (activations[c] > 0 && weights[c] > 0) {
                const double exponent = strength * std::log2(activations[c]) - (1 - strength) * std::log2(weights[c]);
                result[c] = std::ldexp(
                    1.0F, std::clamp(static_cast<int>(std::lround(exponent)), -kMostExponent, kMostExponent));
            }
        }
        return result;
    }
};

std::vector<float> inverse(std::vector<float> factors) {
    for (float& factor : factors) {
        factor = 1.0F / factor;
    }
    return factors;
}

}  // namespace

Smoothing::Smoothing(const model::Decoder& decoder, const Calibration& calibration, double strength) {
    if (!(strength >= 0 && strength <= 1)) {
        throw Error(ErrorCode::InvalidArgument, "the strength of smoothing is 0 to 1");
    }
    const model::DecoderConfig& config = decoder.config;
    const auto columns_of = [&](const WeightMatrix& matrix) -> std::vector<float>& {
        return factors_[std::string(matrix.name)].columns;
    };
    for (const model::LayerWeights& layer : decoder.layers) {
        const auto attention = Channels(calibration, {&layer.query, &layer.key, &layer.value}).factors(strength);
        columns_of(layer.attention_norm) = inverse(attention);
        for (const WeightMatrix* matrix : {&layer.query, &layer.key, &layer.value}) {
            columns_of(*matrix) = attention;
        }
        Channels heads(calibration, {&layer.attention_output});
        const std::size_t group = config.head_count / config.kv_head_count;
        heads.join_heads(group, config.head_dim);
        const std::vector<float> mixed = heads.factors(strength);
        columns_of(layer.attention_output) = mixed;
        std::vector<float> values(std::size_t{config.kv_head_count} * config.head_dim);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = mixed[i / config.head_dim * group * config.head_dim + i % config.head_dim];
        }
        factors_[std::string(layer.value.name)].rows = inverse(values);
        if (layer.value_bias.rows > 0) {
            columns_of(layer.value_bias) = inverse(values);
        }
        const auto inner = Channels(calibration, {&layer.gate, &layer.up}).factors(strength);
        columns_of(layer.feed_forward_norm) = inverse(inner);
        columns_of(layer.gate) = inner;
        columns_of(layer.up) = inner;
        columns_of(layer.down) = Channels(calibration, {&layer.down}).factors(strength);
        factors_[std::string(layer.up.name)].rows = inverse(columns_of(layer.down));
    }
    if (!config.has_tied_embeddings) {
        columns_of(decoder.output) = Channels(calibration, {&decoder.output}).factors(strength);
        columns_of(decoder.output_norm) = inverse(columns_of(decoder.output));
    }
}

const TensorFactors* Smoothing::of(std::string_view tensor) const noexcept {
    const auto found = factors_.find(tensor);
    return found == factors_.end() ? nullptr : &found->second;
}

}  // namespace perceptd::model_tool

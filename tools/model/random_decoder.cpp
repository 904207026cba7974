// One recipe per tensor: its spread follows from its role.
#include "random_decoder.hpp"

#include <cmath>

#include "base/error.hpp"
#include "matrix_output.hpp"
#include "random_vocabulary.hpp"
#include "sensor/counter_rng.hpp"

namespace perceptd::model_tool {
namespace {

constexpr double kEmbeddingSpread = 0.02;

/// The sum of four 16-bit uniforms: near enough to normal, and the same bits on every machine. Mean 0, spread 1.
float random_weight(std::uint64_t seed, std::uint64_t tensor, std::uint64_t index) noexcept {
    constexpr double kMean = 2.0 * 65535.0;
    constexpr double kSpread = 37837.226979;  // sqrt(4 (65536^2 - 1) / 12)
    const std::uint64_t bits = sensor::random_bits(seed, tensor, index);
    const std::uint64_t sum = (bits & 0xffffU) + ((bits >> 16) & 0xffffU) + ((bits >> 32) & 0xffffU) + (bits >> 48);
    return static_cast<float>((static_cast<double>(sum) - kMean) / kSpread);
}

/// The standard deviation of a matrix, or the constant of a norm.
double spread_of(const model::TensorRequirement& tensor, const model::DecoderConfig& config) {
    constexpr double kFreezing = 0.55;
    constexpr double kGatedRms = 0.596;  // sqrt(E[silu(x)^2]) for a standard normal x
    const std::string_view name = tensor.name;
    const double fan_in = std::sqrt(static_cast<double>(tensor.columns));
    const double share = 1.0 / std::sqrt(2.0 * config.layer_count);
    if (name == "output_norm.weight") {
        const double logit_spread = std::sqrt(2.0 * std::log(static_cast<double>(config.vocabulary_size))) / kFreezing;
        return logit_spread / (kEmbeddingSpread * fan_in);
    }
    if (name == "token_embd.weight" || name == "output.weight") {
        return kEmbeddingSpread;
    }
    if (name.ends_with("_norm.weight")) {
        return 1.0;
    }
    if (name.ends_with("attn_output.weight")) {
        return share / fan_in;
    }
    return name.ends_with("ffn_down.weight") ? share / (kGatedRms * fan_in) : 1.0 / fan_in;
}

void add_shape(model::GgufWriter& header, const model::DecoderConfig& config) {
    header.add_text("general.architecture", "llama");
    header.add_text("general.name", "perceptd random decoder");
    header.add_u32("llama.context_length", config.context_tokens);
    header.add_u32("llama.embedding_length", config.width);
    header.add_u32("llama.block_count", config.layer_count);
    header.add_u32("llama.feed_forward_length", config.feed_forward_width);
    header.add_u32("llama.attention.head_count", config.head_count);
    header.add_u32("llama.attention.head_count_kv", config.kv_head_count);
    header.add_u32("llama.attention.key_length", config.head_dim);
    header.add_u32("llama.attention.value_length", config.head_dim);
    header.add_f32("llama.attention.layer_norm_rms_epsilon", config.norm_epsilon);
    header.add_u32("llama.rope.dimension_count", config.rope.dimension_count);
    header.add_f32("llama.rope.freq_base", config.rope.theta);
    header.add_u32("llama.vocab_size", config.vocabulary_size);
}

model::DecoderConfig shape(std::uint32_t width, std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t inner,
                           bool is_tied) {
    constexpr std::uint32_t kHeadDim = 64;
    model::DecoderConfig config;
    config.context_tokens = 4096;
    config.width = width;
    config.layer_count = layers;
    config.head_dim = kHeadDim;
    config.head_count = width / kHeadDim;
    config.kv_head_count = kv_heads;
    config.feed_forward_width = inner;
    config.vocabulary_size = 32000;
    config.norm_epsilon = 1e-5F;
    config.has_tied_embeddings = is_tied;
    config.rope.dimension_count = kHeadDim;
    return config;
}

}  // namespace

std::optional<model::DecoderConfig> named_shape(std::string_view name) {
    if (name == "15m") {
        return shape(256, 8, 4, 768, true);
    }
    if (name == "120m") {
        return shape(768, 12, 12, 2304, true);
    }
    return name == "1.1b" ? std::optional(shape(2048, 22, 4, 5632, false)) : std::nullopt;
}

std::string shape_problem(const model::DecoderConfig& config, model::Encoding encoding) {
    const std::uint64_t multiple = model::column_multiple_of(encoding);
    if (config.vocabulary_size < kMinVocabularySize || config.vocabulary_size > (1U << 20)) {
        return "the vocabulary must have 512 .. 1048576 tokens";
    }
    if (config.head_count == 0 || config.kv_head_count == 0 || config.head_count % config.kv_head_count != 0) {
        return "the KV heads must divide the heads";
    }
    if (config.head_dim == 0 || config.head_dim % 2 != 0) {
        return "the head dimension must be even";
    }
    if (config.layer_count == 0 || config.context_tokens == 0) {
        return "layers and context must be at least 1";
    }
    for (const std::uint64_t length : {std::uint64_t{config.width}, std::uint64_t{config.feed_forward_width},
                                       std::uint64_t{config.head_count} * config.head_dim}) {
        if (length == 0 || length % multiple != 0) {
            return "width, feed-forward width and heads x head dimension must be multiples of " +
                   std::to_string(multiple) + " for " + std::string(model::name_of(encoding));
        }
    }
    return {};
}

void make_random_decoder(const model::DecoderConfig& config, model::Encoding encoding, std::uint64_t seed,
                         const std::string& path) {
    if (const std::string problem = shape_problem(config, encoding); !problem.empty()) {
        throw Error(ErrorCode::InvalidArgument, problem);
    }
    model::GgufWriter header;
    add_shape(header, config);
    add_random_vocabulary(header, config.vocabulary_size);
    const std::vector<model::TensorRequirement> tensors = model::required_tensors(config);
    std::vector<MatrixPlan> plans;
    for (const model::TensorRequirement& tensor : tensors) {
        plans.push_back(
            {tensor.name, tensor.is_f32 ? model::Encoding::F32 : encoding, tensor.columns, tensor.rows, tensor.is_f32});
        declare(header, plans.back());
    }
    GgufOutput output(path, header);
    for (std::size_t t = 0; t < plans.size(); ++t) {
        const auto spread = static_cast<float>(spread_of(tensors[t], config));
        const bool is_constant = tensors[t].is_f32;
        const std::uint64_t columns = plans[t].columns;
        write_matrix(output, plans[t], [=](std::uint64_t index, std::span<float> row) {
            for (std::size_t i = 0; i < row.size(); ++i) {
                row[i] = is_constant ? spread : spread * random_weight(seed, t, index * columns + i);
            }
        });
        show_progress(t + 1, plans.size(), plans[t].name);
    }
    output.commit();
}

}  // namespace perceptd::model_tool

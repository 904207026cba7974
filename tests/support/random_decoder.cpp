#include "random_decoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/gguf_writer.hpp"

namespace perceptd::support {
namespace {

/// SplitMix64: the same numbers everywhere.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31);
    }
    /// Near-normal: the sum of four uniform numbers, variance 1.
    float normal() {
        double sum = 0;
        for (int i = 0; i < 4; ++i) {
            sum += static_cast<double>(next() >> 11) * 0x1p-53 - 0.5;
        }
        return static_cast<float>(sum * std::sqrt(3.0));
    }

private:
    std::uint64_t state_;
};

using Row = std::vector<double>;

Row decoded(const model::WeightMatrix& matrix, std::uint64_t row) {
    std::vector<float> values(matrix.columns);
    model::decode_row(matrix, row, values);
    return {values.begin(), values.end()};
}

Row product(const model::WeightMatrix& matrix, const Row& x, const model::WeightMatrix* bias = nullptr) {
    Row y(matrix.rows);
    const Row offsets = bias != nullptr && bias->rows > 0 ? decoded(*bias, 0) : Row(matrix.rows, 0.0);
    for (std::uint64_t r = 0; r < matrix.rows; ++r) {
        const Row weights = decoded(matrix, r);
        y[r] = offsets[r];
        for (std::size_t c = 0; c < x.size(); ++c) {
            y[r] += weights[c] * x[c];
        }
    }
    return y;
}

Row normalized(const Row& x, const model::WeightMatrix& scale, double epsilon) {
    double sum = 0;
    for (const double value : x) {
        sum += value * value;
    }
    const double factor = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + epsilon);
    Row y = decoded(scale, 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
        y[i] *= x[i] * factor;
    }
    return y;
}

void rotate(Row& heads, const model::DecoderConfig& config, std::size_t position) {
    const std::size_t half = config.rope.dimension_count / 2;
    for (std::size_t head = 0; head < heads.size(); head += config.head_dim) {
        for (std::size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(position) *
                                 std::pow(config.rope.theta, -static_cast<double>(i) / static_cast<double>(half));
            const bool neighbours = config.rope.pairs == model::RopePairs::Neighbours;
            double& a = heads[head + (neighbours ? 2 * i : i)];
            double& b = heads[head + (neighbours ? 2 * i + 1 : i + half)];
            const double turned = a * std::cos(angle) - b * std::sin(angle);
            b = a * std::sin(angle) + b * std::cos(angle);
            a = turned;
        }
    }
}

Row attended(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values,
             const model::DecoderConfig& config) {
    Row out(query.size(), 0.0);
    const std::size_t dim = config.head_dim;
    for (std::size_t head = 0; head < config.head_count; ++head) {
        const std::size_t kv = head / (config.head_count / config.kv_head_count);
        Row scores(keys.size());
        for (std::size_t p = 0; p < keys.size(); ++p) {
            for (std::size_t i = 0; i < dim; ++i) {
                scores[p] += query[head * dim + i] * keys[p][kv * dim + i];
            }
            scores[p] /= std::sqrt(static_cast<double>(dim));
        }
        const double top = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& score : scores) {
            score = std::exp(score - top);
            sum += score;
        }
        for (std::size_t p = 0; p < keys.size(); ++p) {
            for (std::size_t i = 0; i < dim; ++i) {
                out[head * dim + i] += scores[p] / sum * values[p][kv * dim + i];
            }
        }
    }
    return out;
}

void add_to(Row& x, const Row& change) {
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] += change[i];
    }
}

}  // namespace

std::vector<std::byte> random_decoder(const RandomDecoderOptions& options) {
    model::GgufWriter writer;
    const std::string arch = options.qwen2 ? "qwen2" : "llama";
    writer.add_text("general.architecture", arch);
    writer.add_u32(arch + ".context_length", 512);
    writer.add_u32(arch + ".embedding_length", options.width);
    writer.add_u32(arch + ".block_count", options.layer_count);
    writer.add_u32(arch + ".feed_forward_length", options.feed_forward_width);
    writer.add_u32(arch + ".attention.head_count", options.head_count);
    writer.add_u32(arch + ".attention.head_count_kv", options.kv_head_count);
    writer.add_f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);

    model::DecoderConfig config{.family = options.qwen2 ? model::Family::Qwen2 : model::Family::Llama,
                                .width = options.width,
                                .layer_count = options.layer_count,
                                .head_count = options.head_count,
                                .kv_head_count = options.kv_head_count,
                                .head_dim = options.width / options.head_count,
                                .feed_forward_width = options.feed_forward_width,
                                .vocabulary_size = options.vocabulary_size,
                                .has_tied_embeddings = options.tied,
                                .has_qkv_bias = options.qwen2};
    Random random(options.seed);
    std::vector<std::byte> data;
    const auto append = [&](std::span<const std::byte> bytes) { data.insert(data.end(), bytes.begin(), bytes.end()); };
    const auto pad = [&] { data.resize(data.size() + model::GgufWriter::padding_after(data.size())); };
    for (const model::TensorRequirement& tensor : model::required_tensors(config)) {
        model::Encoding encoding = tensor.is_f32 ? model::Encoding::F32 : options.encoding;
        if (!tensor.is_f32 && options.encoding_of) {
            encoding = options.encoding_of(tensor.name);
        }
        const std::uint64_t row_bytes = model::row_bytes_of(encoding, tensor.columns);
        const bool own = model::stored_type_of(encoding) == model::TensorType::I8;
        if (own) {
            writer.add_text(std::string(model::kQuantizationKey) + tensor.name, model::name_of(encoding));
            writer.add_u64(std::string(model::kQuantizationKey) + tensor.name + std::string(model::kColumnsSuffix),
                           tensor.columns);
        }
        const std::uint64_t dims[2] = {own ? row_bytes : tensor.columns, tensor.rows};
        writer.add_tensor(tensor.name, model::stored_type_of(encoding), {dims, tensor.rows > 1 ? 2U : 1U});
        std::vector<float> row(tensor.columns);
        std::vector<float> scales;
        std::vector<std::byte> stored(row_bytes);
        const bool is_norm = tensor.name.find("norm") != std::string::npos;
        const float scale = tensor.is_f32 ? 0.1F : 1.0F / std::sqrt(static_cast<float>(tensor.columns));
        for (std::uint64_t r = 0; r < tensor.rows; ++r) {
            for (float& value : row) {
                value = random.normal() * scale + (is_norm ? 1.0F : 0.0F);
            }
            scales.push_back(model::encode_row(encoding, row, {}, stored));
            append(stored);
        }
        pad();
        if (model::is_fp8(encoding)) {
            const std::uint64_t count[1] = {tensor.rows};
            writer.add_tensor(tensor.name + std::string(model::kRowScaleSuffix), model::TensorType::F32, count);
            append(std::as_bytes(std::span(scales)));
            pad();
        }
    }
    std::vector<std::byte> file = writer.header();
    file.insert(file.end(), data.begin(), data.end());
    return file;
}

std::vector<double> reference_logits(const model::Decoder& decoder, const std::vector<std::uint32_t>& tokens) {
    const model::DecoderConfig& config = decoder.config;
    std::vector<std::vector<Row>> keys(config.layer_count);
    std::vector<std::vector<Row>> values(config.layer_count);
    Row x;
    for (std::size_t position = 0; position < tokens.size(); ++position) {
        x = decoded(decoder.token_embedding, tokens[position]);
        for (std::uint32_t l = 0; l < config.layer_count; ++l) {
            const model::LayerWeights& layer = decoder.layers[l];
            const Row n = normalized(x, layer.attention_norm, config.norm_epsilon);
            Row query = product(layer.query, n, &layer.query_bias);
            Row key = product(layer.key, n, &layer.key_bias);
            rotate(query, config, position);
            rotate(key, config, position);
            keys[l].push_back(std::move(key));
            values[l].push_back(product(layer.value, n, &layer.value_bias));
            add_to(x, product(layer.attention_output, attended(query, keys[l], values[l], config)));
            const Row m = normalized(x, layer.feed_forward_norm, config.norm_epsilon);
            Row gate = product(layer.gate, m);
            const Row up = product(layer.up, m);
            for (std::size_t i = 0; i < gate.size(); ++i) {
                gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
            }
            add_to(x, product(layer.down, gate));
        }
    }
    return product(decoder.output, normalized(x, decoder.output_norm, config.norm_epsilon));
}

}  // namespace perceptd::support

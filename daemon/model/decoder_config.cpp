// Keys to numbers, numbers to requirements, requirements to tensors.
#include "model/decoder_config.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "model/blocks.hpp"
#include "model/utf8.hpp"

namespace perceptd::model {
namespace {

constexpr std::string_view kRopeFactors = "rope_freqs.weight";

class ConfigReader {
public:
    explicit ConfigReader(const Gguf& file) : file_(file) {}

    DecoderConfig read() {
        DecoderConfig config;
        config.family = family();
        config.context_tokens = count(".context_length", 1, 1U << 24);
        config.width = count(".embedding_length", 1, 1U << 16);
        config.layer_count = count(".block_count", 1, 1024);
        config.feed_forward_width = count(".feed_forward_length", 1, 1U << 20);
        config.head_count = count(".attention.head_count", 1, 1024);
        config.kv_head_count =
            has(".attention.head_count_kv") ? count(".attention.head_count_kv", 1, 1024) : config.head_count;
        if (config.head_count % config.kv_head_count != 0) {
            refuse(".attention.head_count_kv", "must divide the " + std::to_string(config.head_count) + " heads");
        }
        config.head_dim = head_dim(config);
        config.norm_epsilon = number(".attention.layer_norm_rms_epsilon", 0.0, 1.0);
        config.vocabulary_size = vocabulary_size(config.width);
        config.has_tied_embeddings = file_.find_tensor("output.weight") == nullptr;
        config.has_qkv_bias = config.family == Family::Qwen2 || file_.find_tensor("blk.0.attn_q.bias") != nullptr;
        config.rope = rope(config);
        return config;
    }

private:
    [[nodiscard]] std::string key(std::string_view suffix) const { return architecture_ + std::string(suffix); }
    [[nodiscard]] bool has(std::string_view suffix) const { return file_.find(key(suffix)) != nullptr; }

    [[noreturn]] void refuse(std::string_view suffix, const std::string& reason,
                             ErrorCode code = ErrorCode::InvalidArgument) const {
        throw Error(code, file_.label() + ": " + key(suffix) + ": " + reason);
    }

    Family family() {
        const GgufValue* const value = file_.find("general.architecture");
        const auto name = value == nullptr ? std::nullopt : value->as_text();
        if (name != "llama" && name != "qwen2") {
            throw Error(ErrorCode::Unsupported, file_.label() + ": general.architecture is " +
                                                    (name ? printable(*name) : "missing") +
                                                    "; llama and qwen2 are known");
        }
        architecture_ = *name;
        return name == "llama" ? Family::Llama : Family::Qwen2;
    }

    [[nodiscard]] std::uint32_t count(std::string_view suffix, std::uint64_t min, std::uint64_t max) const {
        const GgufValue* const value = file_.find(key(suffix));
        if (value == nullptr) {
            refuse(suffix, "missing; the file does not describe a whole decoder");
        }
        if (value->type == GgufType::Array) {
            refuse(suffix, "differs from layer to layer, which is not supported", ErrorCode::Unsupported);
        }
        const auto number = value->as_unsigned();
        if (!number || *number < min || *number > max) {
            refuse(suffix, (number ? std::to_string(*number) : "not a count") + "; expected " + std::to_string(min) +
                               " .. " + std::to_string(max));
        }
        return static_cast<std::uint32_t>(*number);
    }

    /// A finite number in (above, max].
    [[nodiscard]] float number(std::string_view suffix, double above, double max) const {
        const GgufValue* const value = file_.find(key(suffix));
        const auto found = value == nullptr ? std::nullopt : value->as_number();
        if (!found || !(*found > above && *found <= max)) {
            refuse(suffix, (found ? std::to_string(*found) : "missing or not a number") + "; expected more than " +
                               std::to_string(above) + ", at most " + std::to_string(max));
        }
        return static_cast<float>(*found);
    }

    [[nodiscard]] std::uint32_t head_dim(const DecoderConfig& config) const {
        if (has(".attention.key_length")) {
            const std::uint32_t length = count(".attention.key_length", 2, 1024);
            if (has(".attention.value_length") && count(".attention.value_length", 2, 1024) != length) {
                refuse(".attention.value_length", "differs from key_length, which is not supported",
                       ErrorCode::Unsupported);
            }
            return length;
        }
        if (config.width % config.head_count != 0) {
            refuse(".attention.head_count", std::to_string(config.head_count) + " heads do not divide a width of " +
                                                std::to_string(config.width) + "; the file needs attention.key_length");
        }
        return config.width / config.head_count;
    }

    [[nodiscard]] std::uint32_t vocabulary_size(std::uint32_t width) const {
        constexpr std::uint64_t kMaxVocabulary = 1U << 20;
        const TensorInfo* const table = file_.find_tensor("token_embd.weight");
        const std::uint64_t rows = table == nullptr ? 0 : table->rows();
        if (rows == 0 || rows > kMaxVocabulary) {
            throw Error(ErrorCode::InvalidArgument, file_.label() + ": token_embd.weight " +
                                                        (table == nullptr ? "is missing" : "has too many rows") +
                                                        "; it must be " + std::to_string(width) + " x the vocabulary");
        }
        if (has(".vocab_size") && count(".vocab_size", 1, kMaxVocabulary) != rows) {
            refuse(".vocab_size", "differs from the " + std::to_string(rows) + " rows of token_embd.weight");
        }
        return static_cast<std::uint32_t>(rows);
    }

    [[nodiscard]] Rope rope(const DecoderConfig& config) const {
        constexpr double kMaxTheta = 1e12;
        constexpr double kMaxFactor = 1e6;
        Rope rope;
        rope.pairs = config.family == Family::Llama ? RopePairs::Neighbours : RopePairs::Halves;
        rope.theta = has(".rope.freq_base") ? number(".rope.freq_base", 0.0, kMaxTheta) : 10000.0F;
        rope.dimension_count =
            has(".rope.dimension_count") ? count(".rope.dimension_count", 2, config.head_dim) : config.head_dim;
        if (rope.dimension_count % 2 != 0) {
            refuse(".rope.dimension_count", "must be even");
        }
        if (has(".rope.scaling.type")) {
            const auto type = file_.find(key(".rope.scaling.type"))->as_text().value_or("");
            if (type == "linear") {
                rope.scaling = RopeScaling::Linear;
                rope.factor = number(".rope.scaling.factor", 0.0, kMaxFactor);
            } else if (type != "none") {
                refuse(".rope.scaling.type", printable(type) + "; none and linear are known", ErrorCode::Unsupported);
            }
        }
        if (const TensorInfo* const factors = file_.find_tensor(kRopeFactors); factors != nullptr) {
            read_factors(*factors, rope);
        }
        return rope;
    }

    void read_factors(const TensorInfo& tensor, Rope& rope) const {
        const std::string label = file_.label() + ": tensor " + std::string(kRopeFactors) + ": ";
        if (tensor.type != TensorType::F32 || tensor.columns() != rope.dimension_count / 2 || tensor.rows() != 1) {
            throw Error(ErrorCode::InvalidArgument,
                        label + "must hold " + std::to_string(rope.dimension_count / 2) + " F32 values");
        }
        if (rope.scaling != RopeScaling::None) {
            throw Error(ErrorCode::Unsupported,
                        label + "comes with a second kind of position scaling, which is not supported");
        }
        rope.scaling = RopeScaling::Factors;
        for (std::size_t i = 0; i < tensor.columns(); ++i) {
            const float factor = std::bit_cast<float>(load_u32(tensor.bytes.subspan(4 * i)));
            if (!(factor > 0) || !std::isfinite(factor)) {
                throw Error(ErrorCode::InvalidArgument,
                            label + "factor " + std::to_string(i) + " is " + std::to_string(factor));
            }
            rope.frequency_factors.push_back(factor);
        }
    }

    const Gguf& file_;
    std::string architecture_;
};

std::string layer_name(std::uint32_t layer, std::string_view part) {
    return "blk." + std::to_string(layer) + "." + std::string(part);
}

std::string shape_text(std::uint64_t columns, std::uint64_t rows) {
    return std::to_string(columns) + " x " + std::to_string(rows);
}

/// The matrix of one requirement, of the right shape.
WeightMatrix bound(const Gguf& file, const TensorRequirement& needed) {
    const TensorInfo* const tensor = file.find_tensor(needed.name);
    const std::string label = file.label() + ": tensor " + needed.name + ": ";
    if (tensor == nullptr) {
        throw Error(ErrorCode::InvalidArgument, label + "missing; expected " + shape_text(needed.columns, needed.rows));
    }
    const WeightMatrix matrix = matrix_of(file, *tensor);
    if (matrix.columns != needed.columns || matrix.rows != needed.rows) {
        throw Error(ErrorCode::InvalidArgument, label + shape_text(matrix.columns, matrix.rows) + "; expected " +
                                                    shape_text(needed.columns, needed.rows));
    }
    if (needed.is_f32 && matrix.encoding != Encoding::F32) {
        throw Error(ErrorCode::Unsupported,
                    label + "stored as " + std::string(name_of(matrix.encoding)) + "; norms and biases are F32");
    }
    return matrix;
}

void refuse_unknown_tensors(const Gguf& file, const std::vector<TensorRequirement>& needed) {
    std::vector<std::string_view> names{kRopeFactors};
    for (const TensorRequirement& one : needed) {
        names.push_back(one.name);
    }
    std::sort(names.begin(), names.end());
    for (const TensorInfo& tensor : file.tensors()) {
        std::string_view name = tensor.name;
        if (name.ends_with(kRowScaleSuffix)) {
            name.remove_suffix(kRowScaleSuffix.size());
        }
        if (!std::binary_search(names.begin(), names.end(), name)) {
            throw Error(ErrorCode::Unsupported,
                        file.label() + ": tensor " + printable(tensor.name) +
                            " is no part of a llama or qwen2 decoder; the model would run and be wrong");
        }
    }
}

void add_layer(std::vector<TensorRequirement>& needed, const DecoderConfig& config, std::uint32_t layer) {
    const std::uint64_t width = config.width;
    const std::uint64_t query = std::uint64_t{config.head_count} * config.head_dim;
    const std::uint64_t kv = std::uint64_t{config.kv_head_count} * config.head_dim;
    const std::uint64_t inner = config.feed_forward_width;
    const auto add = [&](std::string_view part, std::uint64_t columns, std::uint64_t rows, bool is_f32 = false) {
        needed.push_back({layer_name(layer, part), columns, rows, is_f32});
    };
    add("attn_norm.weight", width, 1, true);
    add("attn_q.weight", width, query);
    add("attn_k.weight", width, kv);
    add("attn_v.weight", width, kv);
    if (config.has_qkv_bias) {
        add("attn_q.bias", query, 1, true);
        add("attn_k.bias", kv, 1, true);
        add("attn_v.bias", kv, 1, true);
    }
    add("attn_output.weight", query, width);
    add("ffn_norm.weight", width, 1, true);
    add("ffn_gate.weight", width, inner);
    add("ffn_up.weight", width, inner);
    add("ffn_down.weight", inner, width);
}

}  // namespace

std::vector<TensorRequirement> required_tensors(const DecoderConfig& config) {
    std::vector<TensorRequirement> needed;
    needed.push_back({"token_embd.weight", config.width, config.vocabulary_size});
    for (std::uint32_t layer = 0; layer < config.layer_count; ++layer) {
        add_layer(needed, config, layer);
    }
    needed.push_back({"output_norm.weight", config.width, 1, true});
    if (!config.has_tied_embeddings) {
        needed.push_back({"output.weight", config.width, config.vocabulary_size});
    }
    return needed;
}

std::uint64_t Decoder::bytes_per_pass() const noexcept {
    const auto size = [](const WeightMatrix& matrix) { return matrix.bytes.size() + matrix.row_scales.size(); };
    std::uint64_t bytes = size(output_norm) + size(output) + token_embedding.bytes.size() / token_embedding.rows;
    for (const LayerWeights& layer : layers) {
        for (const WeightMatrix* matrix :
             {&layer.attention_norm, &layer.query, &layer.key, &layer.value, &layer.query_bias, &layer.key_bias,
              &layer.value_bias, &layer.attention_output, &layer.feed_forward_norm, &layer.gate, &layer.up,
              &layer.down}) {
            bytes += size(*matrix);
        }
    }
    return bytes;
}

Decoder read_decoder(const Gguf& file) {
    Decoder decoder;
    decoder.config = ConfigReader(file).read();
    const std::vector<TensorRequirement> needed = required_tensors(decoder.config);
    refuse_unknown_tensors(file, needed);
    auto next = needed.begin();
    const auto take = [&] { return bound(file, *next++); };
    decoder.token_embedding = take();
    decoder.layers.resize(decoder.config.layer_count);
    for (LayerWeights& layer : decoder.layers) {
        layer.attention_norm = take();
        layer.query = take();
        layer.key = take();
        layer.value = take();
        if (decoder.config.has_qkv_bias) {
            layer.query_bias = take();
            layer.key_bias = take();
            layer.value_bias = take();
        }
        layer.attention_output = take();
        layer.feed_forward_norm = take();
        layer.gate = take();
        layer.up = take();
        layer.down = take();
    }
    decoder.output_norm = take();
    decoder.output = decoder.config.has_tied_embeddings ? decoder.token_embedding : take();
    return decoder;
}

}  // namespace perceptd::model

#include "graph/decoder_graph.hpp"

#include <array>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace perceptd::graph {
namespace {

void check_shape(const DecoderShape& shape) {
    const AttentionShape& attention = shape.attention;
    if (shape.vocabulary_size == 0 || shape.hidden_width == 0 || shape.ffn_width == 0 || shape.layer_count == 0 ||
        attention.query_heads == 0 || attention.kv_heads == 0 || attention.head_dim == 0) {
        throw Error(ErrorCode::InvalidArgument, "decoder: no size may be zero");
    }
    if (attention.query_heads % attention.kv_heads != 0) {
        throw Error(ErrorCode::InvalidArgument, "decoder: " + std::to_string(attention.query_heads) +
                                                    " query heads are no multiple of " +
                                                    std::to_string(attention.kv_heads) + " key heads");
    }
    if (attention.head_dim % 2 != 0) {
        throw Error(ErrorCode::InvalidArgument, "decoder: rotary embedding needs an even head dimension, not " +
                                                    std::to_string(attention.head_dim));
    }
}

class Builder {
public:
    Builder(const DecoderShape& shape, const WeightFormOf& form_of) : shape_(shape), form_of_(form_of) {
        graph_.hidden_width = shape.hidden_width;
        graph_.ffn_width = shape.ffn_width;
        graph_.vocabulary_size = shape.vocabulary_size;
        graph_.layer_count = shape.layer_count;
        graph_.attention = shape.attention;
    }

    Graph build() {
        const WeightId embedding = weight("token_embd.weight", shape_.vocabulary_size, shape_.hidden_width);
        ValueId x = value("embedding", shape_.hidden_width);
        node({.kind = OpKind::Embed, .outputs = {x}, .weights = {embedding}});
        for (layer_ = 0; layer_ < shape_.layer_count; ++layer_) {
            x = feed_forward(attention(x));
        }
        layer_ = kNone;
        rows_ = Rows::Selected;
        const ValueId last = value("selected", shape_.hidden_width);
        node({.kind = OpKind::SelectRows, .inputs = {x}, .outputs = {last}});
        normalize(last, "output_norm.weight");
        graph_.logits = shape_.tied_output
                            ? linear_of(embedding, std::nullopt, "logits")
                            : linear("output.weight", {}, shape_.vocabulary_size, shape_.hidden_width, "logits");
        check(graph_);
        return std::move(graph_);
    }

private:
    std::string in_layer(std::string_view name) const {
        return "blk." + std::to_string(layer_) + "." + std::string(name);
    }

    WeightId weight(const std::string& name, std::uint32_t rows, std::uint32_t cols) {
        const WeightForm form = form_of_(name, rows, cols);
        graph_.weights.push_back({name, rows, cols, form.bytes, form.activation});
        return static_cast<WeightId>(graph_.weights.size() - 1);
    }

    ValueId value(std::string_view name, std::uint32_t width) {
        const std::string prefix = layer_ == kNone ? std::string() : std::to_string(layer_) + ".";
        return graph_.add_value(prefix + std::string(name), width, Format::F32, rows_);
    }

    void node(Node node) {
        node.layer = layer_;
        graph_.nodes.push_back(std::move(node));
    }

    ValueId unary(OpKind kind, ValueId input, std::string_view name) {
        const ValueId output = value(name, graph_.values[input].width);
        node({.kind = kind, .inputs = {input}, .outputs = {output}});
        return output;
    }

    /// Sets the input of the next linear operations; its quantized form is made when one of them wants it.
    void feed(ValueId input) {
        input_ = input;
        quantized_ = kNone;
    }

    void normalize(ValueId input, const std::string& name) {
        const WeightId scale = weight(name, 1, shape_.hidden_width);
        const ValueId output = value("norm", shape_.hidden_width);
        node({.kind = OpKind::RmsNorm,
              .inputs = {input},
              .outputs = {output},
              .weights = {scale},
              .epsilon = shape_.norm_epsilon});
        feed(output);
    }

    ValueId linear_of(WeightId matrix, std::optional<WeightId> bias, std::string_view name) {
        const Weight& weight = graph_.weights[matrix];
        const std::uint32_t rows = weight.rows;
        ValueId input = input_;
        if (weight.activation == Format::Q8) {
            if (quantized_ == kNone) {
                quantized_ = graph_.add_value(graph_.values[input_].name + "_q8", graph_.values[input_].width,
                                              Format::Q8, graph_.values[input_].rows);
                node({.kind = OpKind::Quantize, .inputs = {input_}, .outputs = {quantized_}});
            }
            input = quantized_;
        }
        const ValueId output = value(name, rows);
        Node linear{.kind = OpKind::Linear, .inputs = {input}, .outputs = {output}, .weights = {matrix}};
        if (bias) {
            linear.weights.push_back(*bias);
        }
        node(std::move(linear));
        return output;
    }

    ValueId linear(const std::string& name, const std::string& bias_name, std::uint32_t rows, std::uint32_t cols,
                   std::string_view output_name) {
        const WeightId matrix = weight(name, rows, cols);
        std::optional<WeightId> bias;
        if (!bias_name.empty()) {
            bias = weight(bias_name, 1, rows);
        }
        return linear_of(matrix, bias, output_name);
    }

    ValueId projection(std::string_view name, std::uint32_t rows, std::string_view output_name) {
        const std::string base = in_layer(name);
        return linear(base + ".weight", shape_.qkv_bias ? base + ".bias" : std::string(), rows, shape_.hidden_width,
                      output_name);
    }

    ValueId add(ValueId residual, ValueId change, std::string_view name) {
        const ValueId output = value(name, shape_.hidden_width);
        node({.kind = OpKind::Add, .inputs = {residual, change}, .outputs = {output}});
        return output;
    }

    ValueId attention(ValueId x) {
        normalize(x, in_layer("attn_norm.weight"));
        const std::uint32_t query_width = shape_.attention.query_width();
        const ValueId query = projection("attn_q", query_width, "q");
        const ValueId key = projection("attn_k", shape_.attention.kv_width(), "k");
        const ValueId value_row = projection("attn_v", shape_.attention.kv_width(), "v");
        const ValueId turned_query = unary(OpKind::Rope, query, "q_rope");
        const ValueId turned_key = unary(OpKind::Rope, key, "k_rope");
        node({.kind = OpKind::KvWrite, .inputs = {turned_key, value_row}});
        rows_ = Rows::Score;
        const ValueId scores = value("scores", shape_.attention.query_heads);
        node({.kind = OpKind::Scores, .inputs = {turned_query}, .outputs = {scores}});
        const ValueId shares = unary(OpKind::Softmax, scores, "shares");
        rows_ = Rows::Token;
        const ValueId heads = value("heads", query_width);
        node({.kind = OpKind::WeightedSum, .inputs = {shares}, .outputs = {heads}});
        feed(heads);
        const ValueId output = linear(in_layer("attn_output.weight"), {}, shape_.hidden_width, query_width, "attn_out");
        return add(x, output, "after_attn");
    }

    ValueId feed_forward(ValueId x) {
        normalize(x, in_layer("ffn_norm.weight"));
        const ValueId gate = linear(in_layer("ffn_gate.weight"), {}, shape_.ffn_width, shape_.hidden_width, "gate");
        const ValueId up = linear(in_layer("ffn_up.weight"), {}, shape_.ffn_width, shape_.hidden_width, "up");
        const ValueId product = value("swiglu", shape_.ffn_width);
        node({.kind = OpKind::SwiGlu, .inputs = {gate, up}, .outputs = {product}});
        feed(product);
        const ValueId output = linear(in_layer("ffn_down.weight"), {}, shape_.hidden_width, shape_.ffn_width, "down");
        return add(x, output, "after_ffn");
    }

    const DecoderShape& shape_;
    const WeightFormOf& form_of_;
    Graph graph_;
    std::uint32_t layer_ = kNone;
    Rows rows_ = Rows::Token;
    ValueId input_ = kNone;
    ValueId quantized_ = kNone;
};

}  // namespace

Graph build_decoder(const DecoderShape& shape, const WeightFormOf& form_of) {
    check_shape(shape);
    return Builder(shape, form_of).build();
}

}  // namespace perceptd::graph

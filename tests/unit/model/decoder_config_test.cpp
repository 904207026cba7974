#include "model/decoder_config.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>

#include "base/error.hpp"
#include "gguf_bytes.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;

namespace {

/// A small decoder's header as editable parts.
struct Parts {
    std::string family = "llama";
    std::map<std::string, std::uint32_t> counts{
        {"context_length", 128},     {"embedding_length", 32},       {"block_count", 2}, {"feed_forward_length", 64},
        {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"vocab_size", 100}};
    std::map<std::string, float> numbers{{"attention.layer_norm_rms_epsilon", 1e-5F}, {"rope.freq_base", 5e5F}};
    std::map<std::string, std::string> texts;
    struct Tensor {
        TensorType type;
        std::vector<std::uint64_t> dims;
    };
    std::map<std::string, Tensor> tensors;

    Parts() {
        const auto add = [&](const std::string& name, std::vector<std::uint64_t> dims) {
            tensors[name] = {TensorType::F32, std::move(dims)};
        };
        add("token_embd.weight", {32, 100});
        add("output_norm.weight", {32});
        add("output.weight", {32, 100});
        for (const std::string layer : {"blk.0.", "blk.1."}) {
            add(layer + "attn_norm.weight", {32});
            add(layer + "attn_q.weight", {32, 32});
            add(layer + "attn_k.weight", {32, 16});
            add(layer + "attn_v.weight", {32, 16});
            add(layer + "attn_output.weight", {32, 32});
            add(layer + "ffn_norm.weight", {32});
            add(layer + "ffn_gate.weight", {32, 64});
            add(layer + "ffn_up.weight", {32, 64});
            add(layer + "ffn_down.weight", {64, 32});
        }
    }

    [[nodiscard]] std::vector<std::byte> file() const {
        GgufWriter writer;
        writer.add_text("general.architecture", family);
        for (const auto& [key, value] : counts) {
            writer.add_u32(family + "." + key, value);
        }
        for (const auto& [key, value] : numbers) {
            writer.add_f32(family + "." + key, value);
        }
        for (const auto& [key, value] : texts) {
            writer.add_text(family + "." + key, value);
        }
        for (const auto& [name, tensor] : tensors) {
            writer.add_tensor(name, tensor.type, tensor.dims);
        }
        return whole_file(writer);
    }
};

DecoderConfig config_of(const Parts& parts) {
    const auto bytes = parts.file();
    return read_decoder(Gguf::parse(bytes, "small")).config;
}

}  // namespace

TEST_CASE("A llama decoder is read") {
    const auto bytes = Parts().file();
    const Decoder decoder = read_decoder(Gguf::parse(bytes, "small"));
    CHECK(decoder.config.head_dim == 8);
    CHECK(decoder.config.kv_head_count == 2);
    CHECK(decoder.config.vocabulary_size == 100);
    CHECK(decoder.config.rope.theta == 5e5F);
    CHECK(decoder.config.rope.pairs == RopePairs::Neighbours);
    CHECK_FALSE(decoder.config.has_tied_embeddings);
    CHECK(decoder.layers[1].down.name == "blk.1.ffn_down.weight");
    CHECK(decoder.layers[1].query_bias.rows == 0);
    // By hand: per layer 2 norms, q and o 32 x 32, k and v 32 x 16, three of 32 x 64; then the last norm, the output
    // matrix and one row of the embedding table.
    CHECK(decoder.bytes_per_pass() == 4 * (2 * (2 * 32 + 2 * 1024 + 2 * 512 + 3 * 2048) + 32 + 3200 + 32));
}

TEST_CASE("Variants of the family") {
    Parts tied;
    tied.tensors.erase("output.weight");
    CHECK(config_of(tied).has_tied_embeddings);

    Parts qwen;
    qwen.family = "qwen2";
    CHECK_THROWS_WITH(config_of(qwen), Catch::Contains("blk.0.attn_q.bias: missing"));
    for (const std::string layer : {"blk.0.", "blk.1."}) {
        qwen.tensors[layer + "attn_q.bias"] = {TensorType::F32, {32}};
        qwen.tensors[layer + "attn_k.bias"] = {TensorType::F32, {16}};
        qwen.tensors[layer + "attn_v.bias"] = {TensorType::F32, {16}};
    }
    CHECK(config_of(qwen).rope.pairs == RopePairs::Halves);
    CHECK(config_of(qwen).has_qkv_bias);

    Parts linear;
    linear.texts["rope.scaling.type"] = "linear";
    linear.numbers["rope.scaling.factor"] = 4;
    CHECK(config_of(linear).rope.scaling == RopeScaling::Linear);
    CHECK(config_of(linear).rope.factor == 4);

    Parts factors;
    factors.tensors["rope_freqs.weight"] = {TensorType::F32, {4}};
    CHECK_THROWS_WITH(config_of(factors), Catch::Contains("factor 0 is 0"));
    auto bytes = factors.file();
    const Gguf file = Gguf::parse(bytes, "factors");
    const auto at = file.find_tensor("rope_freqs.weight")->bytes.data() - bytes.data();
    for (int i = 0; i < 4; ++i) {
        bytes[static_cast<std::size_t>(at + 4 * i + 3)] = std::byte{0x40};  // 2.0F
    }
    const Rope rope = read_decoder(file).config.rope;
    CHECK(rope.scaling == RopeScaling::Factors);
    CHECK(rope.frequency_factors == std::vector<float>(4, 2.0F));
}

TEST_CASE("A file that is no whole decoder is refused by key or tensor") {
    struct Case {
        const char* what;
        std::function<void(Parts&)> change;
        const char* reason;
    };
    const Case cases[] = {
        {"architecture", [](Parts& p) { p.family = "mamba"; }, "general.architecture is mamba; llama and qwen2"},
        {"no width", [](Parts& p) { p.counts.erase("embedding_length"); }, "llama.embedding_length: missing"},
        {"width 0", [](Parts& p) { p.counts["embedding_length"] = 0; }, "expected 1 .. 65536"},
        {"layers", [](Parts& p) { p.counts["block_count"] = 4000000000U; },
         "block_count: 4000000000; expected 1 .. 1024"},
        {"one layer too many", [](Parts& p) { p.counts["block_count"] = 3; }, "blk.2.attn_norm.weight: missing"},
        {"one layer too few", [](Parts& p) { p.counts["block_count"] = 1; }, "blk.1.attn_k.weight is no part"},
        {"heads", [](Parts& p) { p.counts["attention.head_count"] = 5; }, "must divide the 5 heads"},
        {"kv heads", [](Parts& p) { p.counts["attention.head_count_kv"] = 3; }, "must divide the 4 heads"},
        {"heads and width", [](Parts& p) { p.counts["attention.head_count"] = 6; },
         "6 heads do not divide a width of 32"},
        {"value length",
         [](Parts& p) {
             p.counts["attention.key_length"] = 8;
             p.counts["attention.value_length"] = 16;
         },
         "differs from key_length"},
        {"vocabulary", [](Parts& p) { p.counts["vocab_size"] = 101; }, "differs from the 100 rows"},
        {"no epsilon", [](Parts& p) { p.numbers.clear(); }, "layer_norm_rms_epsilon: missing"},
        {"epsilon NaN", [](Parts& p) { p.numbers["attention.layer_norm_rms_epsilon"] = NAN; }, "expected more than 0"},
        {"theta", [](Parts& p) { p.numbers["rope.freq_base"] = -1; }, "rope.freq_base"},
        {"rope dimensions", [](Parts& p) { p.counts["rope.dimension_count"] = 10; }, "expected 2 .. 8"},
        {"odd rope dimensions", [](Parts& p) { p.counts["rope.dimension_count"] = 7; }, "must be even"},
        {"yarn", [](Parts& p) { p.texts["rope.scaling.type"] = "yarn"; }, "yarn; none and linear"},
        {"no table", [](Parts& p) { p.tensors.erase("token_embd.weight"); }, "token_embd.weight is missing"},
        {"no tensor", [](Parts& p) { p.tensors.erase("blk.1.ffn_up.weight"); },
         "blk.1.ffn_up.weight: missing; expected 32 x 64"},
        {"shape",
         [](Parts& p) {
             p.tensors["blk.0.attn_k.weight"].dims = {32, 32};
         },
         "blk.0.attn_k.weight: 32 x 32; expected 32 x 16"},
        {"norm type", [](Parts& p) { p.tensors["output_norm.weight"].type = TensorType::F16; },
         "stored as f16; norms and biases are F32"},
        {"experts",
         [](Parts& p) {
             p.tensors["blk.0.ffn_gate_exps.weight"] = {TensorType::F32, {4}};
         },
         "ffn_gate_exps.weight is no part"},
    };
    for (const Case& one : cases) {
        Parts parts;
        one.change(parts);
        INFO(one.what);
        CHECK_THROWS_WITH(config_of(parts), Catch::Contains(one.reason));
    }
}

TEST_CASE("Counts that differ from layer to layer are refused") {
    Parts parts;
    auto bytes = parts.file();
    GgufWriter writer;
    const Gguf small = Gguf::parse(bytes, "small");
    for (const GgufEntry& entry : small.metadata()) {
        if (entry.key != "llama.attention.head_count_kv") {
            writer.add_value(entry.key, entry.value);
        }
    }
    const std::vector<std::int32_t> per_layer{2, 2};
    writer.add_integers("llama.attention.head_count_kv", per_layer);
    for (const auto& [name, tensor] : parts.tensors) {
        writer.add_tensor(name, tensor.type, tensor.dims);
    }
    const auto changed = whole_file(writer);
    CHECK_THROWS_WITH(read_decoder(Gguf::parse(changed, "small")), Catch::Contains("differs from layer to layer"));
}

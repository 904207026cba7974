#include "accuracy.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "../../support/random_decoder.hpp"
#include "../model/package_files.hpp"
#include "base/error.hpp"
#include "calibration.hpp"
#include "engine/decoder_runtime.hpp"
#include "matrix_output.hpp"
#include "model/loaded_model.hpp"
#include "plan_report.hpp"
#include "quantization.hpp"
#include "random_decoder.hpp"
#include "reference_decoder.hpp"
#include "smoothing.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;
using namespace perceptd::model_tool;

namespace {

DecoderConfig small_shape() {
    DecoderConfig config = *named_shape("15m");
    config.width = 256;
    config.layer_count = 2;
    config.head_count = 4;
    config.kv_head_count = 2;
    config.head_dim = 64;
    config.feed_forward_width = 512;
    config.vocabulary_size = 1024;
    config.rope.dimension_count = 64;
    config.has_tied_embeddings = false;
    return config;
}

DecoderFile decoder_at(const std::string& path) {
    return DecoderFile::read(ModelFile::open(path, Backing::Mapped));
}

Accuracy accuracy_of(const std::string& path, const std::string& reference = {},
                     engine::KvFormat format = engine::KvFormat::F16) {
    return measure_accuracy({.model_path = path,
                             .reference_path = reference,
                             .sample = {.tokens = 128, .sequence = 64, .seed = 5},
                             .kv_format = format});
}

/// Copies a model of floats; `change(name, row, values)` may alter each row.
void copy_changed(const std::string& from, const std::string& to,
                  const std::function<void(std::string_view, std::uint64_t, std::span<float>)>& change) {
    const DecoderFile source = decoder_at(from);
    GgufWriter header;
    for (const GgufEntry& entry : source.gguf.metadata()) {
        if (entry.key != "general.alignment") {
            header.add_value(entry.key, entry.value);
        }
    }
    std::vector<MatrixPlan> plans;
    for (const TensorInfo& tensor : source.gguf.tensors()) {
        plans.push_back({std::string(tensor.name), Encoding::F32, tensor.columns(), tensor.rows(), tensor.rank == 1});
        declare(header, plans.back());
    }
    GgufOutput output(to, header);
    for (const MatrixPlan& plan : plans) {
        const WeightMatrix matrix = matrix_of(source.gguf, *source.gguf.find_tensor(plan.name));
        write_matrix(output, plan, [&](std::uint64_t row, std::span<float> values) {
            decode_row(matrix, row, values);
            change(plan.name, row, values);
        });
    }
    output.commit();
}

/// The same function with channels 3 and 40 of every norm 50 times as large: what real models are like.
void make_with_outliers(const std::string& from, const std::string& to) {
    copy_changed(from, to, [](std::string_view name, std::uint64_t, std::span<float> row) {
        const bool is_norm = name.ends_with("_norm.weight");
        const bool reads_norm = name.find("attn_q") != name.npos || name.find("attn_k") != name.npos ||
                                name.find("attn_v") != name.npos || name.find("ffn_gate") != name.npos ||
                                name.find("ffn_up") != name.npos || name == "output.weight";
        for (const std::size_t channel : {3U, 40U}) {
            if (is_norm || reads_norm) {
                row[channel] *= is_norm ? 50.0F : 1.0F / 50.0F;
            }
        }
    });
}

/// Logits of the engine, all tokens after each other.
std::vector<float> engine_logits(const std::string& path, const std::vector<std::uint32_t>& tokens) {
    engine::WorkerTeam team({.worker_count = 1});
    auto runtime = engine::DecoderRuntime::load(
        path, team,
        {.limits = {.tokens_max = 64, .logit_rows_max = 64}, .positions_max = 64, .kv_format = engine::KvFormat::F32});
    const std::vector<std::uint32_t> pages{0, 1};
    std::vector<std::byte> pool(runtime.kv_shape().page_bytes() * pages.size());
    std::vector<std::uint32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0U);
    REQUIRE(runtime.executor().run(
                {.token_ids = tokens, .logit_rows = rows, .kv = {runtime.kv_shape(), pool.data(), pages}}) ==
            Status::Ok);
    const float* const first = runtime.executor().logits().row(0);
    return {first, first + tokens.size() * runtime.config().vocabulary_size};
}

}  // namespace

TEST_CASE("The reference is another computation of the same formulas") {
    for (const bool qwen2 : {false, true}) {
        support::RandomDecoderOptions options;
        options.encoding = Encoding::Q4_0;
        options.qwen2 = qwen2;
        const auto bytes = support::random_decoder(options);
        const Gguf gguf = Gguf::parse(bytes, "random");
        const Decoder decoder = read_decoder(gguf);
        const std::vector<std::uint32_t> tokens{5, 300, 17, 17, 200, 1, 0, 319, 44, 80, 81};
        const Columns found = reference_logits(decoder, tokens);
        for (std::size_t count = 1; count <= tokens.size(); count += 5) {
            const auto wanted = support::reference_logits(decoder, {tokens.begin(), tokens.begin() + long(count)});
            for (std::size_t v = 0; v < wanted.size(); ++v) {
                REQUIRE(found.channel(v)[count - 1] == Approx(wanted[v]).epsilon(1e-9).margin(1e-9));
            }
        }
        CHECK_THROWS_WITH(reference_logits(decoder, std::vector<std::uint32_t>{1, 320}),
                          Catch::Contains("beyond the vocabulary"));
    }
}

TEST_CASE("Each encoding's logits stay within its bounds of exact arithmetic, and of the weights before quantizing") {
    const TemporaryFolder folder;
    const std::string source = (folder.path() / "source").string();
    make_random_decoder(small_shape(), Encoding::F32, 3, source);
    struct Bound {
        Encoding encoding;
        double own;   ///< mean KL to double arithmetic on the same weights: quantized activations
        double cost;  ///< mean KL to the weights before quantizing
    };
    // A random model amplifies: logits of a standard deviation near 7, so that what 4 bits cost is far above what they
    // cost a trained one. What matters here is that nothing grows.
    const Bound bounds[] = {
        {Encoding::F32, 1e-9, 1e-5},    {Encoding::F16, 1e-9, 4e-5},    {Encoding::Bf16, 1e-9, 2e-3},
        {Encoding::Fp8E4m3, 1e-9, 0.3}, {Encoding::Fp8E5m2, 1e-9, 1.1}, {Encoding::Q8_0, 0.008, 0.02},
        {Encoding::Q6_K, 0.01, 0.16},   {Encoding::Q4_0, 0.01, 2.2},    {Encoding::Q4_1, 0.012, 2.0},
        {Encoding::Int4G32, 0.01, 2.0}, {Encoding::Int4G128, 0.01, 2.4}};
    for (const Bound& bound : bounds) {
        const std::string path = (folder.path() / std::string(name_of(bound.encoding))).string();
        quantize(source, path, {.encoding = bound.encoding});
        const Accuracy own = accuracy_of(path, {}, engine::KvFormat::F32);
        const Accuracy cost = accuracy_of(path, source);
        INFO(name_of(bound.encoding) << " own " << own.kl_mean << " p99 " << own.kl_p99 << " cost " << cost.kl_mean
                                     << " p99 " << cost.kl_p99 << " top1 " << cost.top1_agreement);
        CHECK(own.tokens == 128);
        CHECK(own.kl_mean < bound.own);
        CHECK(own.kl_p99 >= own.kl_mean);
        CHECK(own.kl_p99 < 6 * bound.own);
        CHECK(cost.kl_mean < bound.cost);
        CHECK(own.kl_mean <= cost.kl_mean * 1.05 + 1e-9);
    }
}

TEST_CASE("A cache of 8 bits costs what its rounding costs") {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "model").string();
    make_random_decoder(small_shape(), Encoding::F32, 3, path);
    const double exact = accuracy_of(path, {}, engine::KvFormat::F32).kl_mean;
    const double half = accuracy_of(path, {}, engine::KvFormat::F16).kl_mean;
    const double codes = accuracy_of(path, {}, engine::KvFormat::Q8).kl_mean;
    const double eights = accuracy_of(path, {}, engine::KvFormat::Fp8E4m3).kl_mean;
    INFO(exact << " " << half << " " << codes << " " << eights);
    CHECK(exact < 1e-9);
    CHECK(exact < half);
    CHECK(half < 1e-5);
    CHECK(half < codes);
    CHECK(codes < 0.01);
    CHECK(codes < eights);
    CHECK(eights < 0.2);
}

TEST_CASE("A calibration holds what the matrices were multiplied with") {
    const TemporaryFolder folder;
    const std::string source = (folder.path() / "source").string();
    const std::string path = (folder.path() / "calibration").string();
    make_random_decoder(small_shape(), Encoding::F32, 4, source);
    const SampleOptions sample{.tokens = 48, .sequence = 20, .seed = 9};
    calibrate(source, sample, path);
    const Calibration calibration(path);
    const DecoderFile model = decoder_at(source);
    // The first projection sees nothing but the normalized embeddings.
    std::vector<double> squares(256);
    std::vector<double> largest(256);
    std::vector<float> norm(256);
    decode_row(model.decoder.layers[0].attention_norm, 0, norm);
    std::size_t count = 0;
    for (const auto& sequence : token_sample(model, sample)) {
        CHECK((sequence.size() == 20 || sequence.size() == 8));
        for (const std::uint32_t token : sequence) {
            std::vector<float> row(256);
            decode_row(model.decoder.token_embedding, token, row);
            double sum = 0;
            for (const float value : row) {
                sum += double(value) * double(value);
            }
            for (std::size_t c = 0; c < 256; ++c) {
                const double value = double(row[c]) * double(norm[c]) / std::sqrt(sum / 256 + 1e-5);
                squares[c] += value * value;
                largest[c] = std::max(largest[c], std::abs(value));
            }
            ++count;
        }
    }
    REQUIRE(count == 48);
    for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_v.weight"}) {
        for (std::size_t c = 0; c < 256; ++c) {
            REQUIRE(double(calibration.importance(name, 256)[c]) == Approx(squares[c] / 48).epsilon(1e-5));
            REQUIRE(double(calibration.largest(name, 256)[c]) == Approx(largest[c]).epsilon(1e-5));
        }
    }
    CHECK(calibration.largest("blk.1.ffn_down.weight", 512).size() == 512);
    CHECK(calibration.largest("output_norm.weight", 256).empty());
    CHECK_THROWS_WITH(calibration.largest("blk.1.ffn_down.weight", 256), Catch::Contains("512 values for 256"));
    CHECK_THROWS_WITH(calibrate(source, {.text_path = "/nonexistent"}, path + "2"), Catch::Contains("No such file"));
    CHECK_THROWS_WITH(calibrate(source, {.sequence = 1'000'000}, path + "2"), Catch::Contains("2 to"));
    CHECK_FALSE(std::filesystem::exists(path + "2"));
}

TEST_CASE("Smoothing changes no bit of a float model, and takes outlier channels' error from a quantized one") {
    const TemporaryFolder folder;
    const auto path = [&](const char* name) { return (folder.path() / name).string(); };
    make_random_decoder(small_shape(), Encoding::F32, 3, path("plain"));
    make_with_outliers(path("plain"), path("source"));
    calibrate(path("source"), {.tokens = 128, .sequence = 64, .seed = 2}, path("calibration"));
    const auto smooth = [&](const char* name, Encoding encoding) {
        quantize(path("source"), path(name),
                 {.encoding = encoding, .calibration_path = path("calibration"), .smoothing = 0.5});
    };
    smooth("smooth", Encoding::F32);
    const auto weights_of = [&](const char* name) {
        const DecoderFile file = decoder_at(path(name));
        std::vector<float> row(256);
        decode_row(file.decoder.layers[1].gate, 7, row);
        return row;
    };
    REQUIRE(weights_of("smooth") != weights_of("source"));
    std::vector<std::uint32_t> tokens(40);
    std::iota(tokens.begin(), tokens.end(), 100U);
    CHECK(engine_logits(path("smooth"), tokens) == engine_logits(path("source"), tokens));

    for (const Encoding encoding : {Encoding::Q8_0, Encoding::Int4G32}) {
        quantize(path("source"), path("rough"), {.encoding = encoding});
        smooth("fine", encoding);
        const Accuracy rough = accuracy_of(path("rough"), path("source"));
        const Accuracy fine = accuracy_of(path("fine"), path("source"));
        INFO(name_of(encoding) << " " << rough.kl_mean << " -> " << fine.kl_mean << ", " << rough.logit_error_rms
                               << " -> " << fine.logit_error_rms);
        CHECK(fine.logit_error_rms < 0.8 * rough.logit_error_rms);
        CHECK(fine.kl_mean < 0.7 * rough.kl_mean);
    }
    CHECK_THROWS_WITH(quantize(path("source"), path("x"), {.smoothing = 0.5}), Catch::Contains("needs a calibration"));
    CHECK_THROWS_WITH(quantize(path("source"), path("x"), {.calibration_path = path("calibration"), .smoothing = 1.5}),
                      Catch::Contains("0 to 1"));
    CHECK_FALSE(std::filesystem::exists(path("x")));
}

TEST_CASE("Smoothing keeps what KV heads and biases share, and leaves a shared embedding table alone") {
    support::RandomDecoderOptions options;
    options.encoding = Encoding::F32;
    options.tied = true;
    options.qwen2 = true;
    const TemporaryFolder folder;
    const auto bytes = support::random_decoder(options);
    const Gguf gguf = Gguf::parse(bytes, "random");
    const Decoder decoder = read_decoder(gguf);
    // A calibration in which the four query heads of the two KV heads differ.
    GgufWriter header;
    const auto names = [&](auto&& take) {
        for (const LayerWeights& layer : decoder.layers) {
            for (const WeightMatrix* matrix : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                                               &layer.gate, &layer.up, &layer.down}) {
                take(*matrix);
            }
        }
    };
    names([&](const WeightMatrix& matrix) {
        header.add_tensor(std::string(matrix.name) + ".largest", TensorType::F32, std::span(&matrix.columns, 1));
    });
    const std::string path = (folder.path() / "calibration").string();
    GgufOutput output(path, header);
    names([&](const WeightMatrix& matrix) {
        std::vector<float> values(matrix.columns);
        for (std::size_t c = 0; c < values.size(); ++c) {
            values[c] = static_cast<float>(c % 7 + c / 32 * 10 + 1);
        }
        output.write(std::as_bytes(std::span(values)));
        output.end_tensor();
    });
    output.commit();
    const Smoothing smoothing(decoder, Calibration(path), 1.0);
    const TensorFactors& mixed = *smoothing.of("blk.0.attn_output.weight");
    const TensorFactors& value = *smoothing.of("blk.0.attn_v.weight");
    const TensorFactors& bias = *smoothing.of("blk.0.attn_v.bias");
    REQUIRE(mixed.columns.size() == 128);
    REQUIRE(value.rows.size() == 64);
    for (std::size_t c = 0; c < 128; ++c) {
        const std::size_t row = c / 64 * 32 + c % 32;
        REQUIRE(mixed.columns[c] * value.rows[row] == 1.0F);
        REQUIRE(bias.columns[row] == value.rows[row]);
    }
    const TensorFactors& up = *smoothing.of("blk.1.ffn_up.weight");
    const TensorFactors& down = *smoothing.of("blk.1.ffn_down.weight");
    const TensorFactors& norm = *smoothing.of("blk.1.ffn_norm.weight");
    for (std::size_t c = 0; c < up.rows.size(); ++c) {
        REQUIRE(up.rows[c] * down.columns[c] == 1.0F);
    }
    for (std::size_t c = 0; c < norm.columns.size(); ++c) {
        REQUIRE(norm.columns[c] * up.columns[c] == 1.0F);
    }
    CHECK(smoothing.of("token_embd.weight") == nullptr);
    CHECK(smoothing.of("output_norm.weight") == nullptr);
    CHECK_THROWS_WITH(Smoothing(decoder, Calibration(), 0.5), Catch::Contains("says nothing of blk.0.attn_q.weight"));
}

TEST_CASE("The plan's report says what a pass moves and what is pinned, and fusion can be switched off") {
    const TemporaryFolder folder;
    const auto path = [&](const char* name) { return (folder.path() / name).string(); };
    make_random_decoder(small_shape(), Encoding::Q4_0, 3, path("target"));
    DecoderConfig draft = small_shape();
    draft.layer_count = 1;
    make_random_decoder(draft, Encoding::Q8_0, 3, path("draft"));
    constexpr std::uint64_t kBudgetBytes = 400'000;
    const PlanOptions options{.model_path = path("target"),
                              .draft_path = path("draft"),
                              .positions = 64,
                              .tcm_bytes = 1 << 20,
                              .pinned_bytes = kBudgetBytes,
                              .as_json = true};
    const auto report = nlohmann::json::parse(plan_report(options));
    engine::WorkerTeam team({.worker_count = 1});
    const auto runtime = engine::DecoderRuntime::load(path("target"), team, {});
    REQUIRE(report["passes"].size() == 5);
    for (const auto& pass : report["passes"]) {
        const graph::Traffic wanted =
            runtime.predict({.tokens = pass["tokens"], .positions_before = 64, .logit_rows = 1});
        CHECK(pass["weight_bytes"] == wanted.weight_bytes);
        CHECK(pass["kv_read_bytes"] == wanted.kv_read_bytes);
        CHECK(pass["kv_write_bytes"] == wanted.kv_write_bytes);
    }
    CHECK(report["tiles"].size() == 4);
    std::uint64_t pinned_bytes = 0;
    const auto& models = report["residency"]["models"];
    REQUIRE(models.size() == 2);
    for (const auto& model : models) {
        pinned_bytes += model["pinned_bytes"].get<std::uint64_t>();
        CHECK(model["fraction"] == Approx(model["pinned_bytes"].get<double>() / model["weight_bytes"].get<double>()));
    }
    CHECK(pinned_bytes <= kBudgetBytes);
    CHECK(pinned_bytes > kBudgetBytes / 2);
    // A byte of the draft is read four times as often.
    CHECK(models[1]["role"] == "draft");
    CHECK(models[1]["fraction"] > models[0]["fraction"]);
    CHECK_FALSE(models[1]["weights"].empty());
    PlanOptions unfused = options;
    unfused.fuse = false;
    CHECK(nlohmann::json::parse(plan_report(unfused))["operations"] > report["operations"]);
    unfused.as_json = false;
    CHECK_THAT(plan_report(unfused), Catch::Contains("pinned") && Catch::Contains("draft: "));
    CHECK_THROWS_AS(plan_report({.model_path = path("missing")}), std::exception);
}

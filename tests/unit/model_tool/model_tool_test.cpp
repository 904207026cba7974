#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "../model/package_files.hpp"
#include "base/error.hpp"
#include "inspection.hpp"
#include "model/loaded_model.hpp"
#include "model/text_stream.hpp"
#include "packing.hpp"
#include "quantization.hpp"
#include "random_decoder.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;
using namespace perceptd::model_tool;

namespace {

DecoderConfig small_shape() {
    DecoderConfig config = *named_shape("15m");
    config.width = 128;
    config.layer_count = 2;
    config.head_count = 4;
    config.kv_head_count = 2;
    config.head_dim = 32;
    config.feed_forward_width = 256;
    config.vocabulary_size = 1024;
    config.rope.dimension_count = 32;
    return config;
}

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<float> all_weights(const WeightMatrix& matrix) {
    std::vector<float> all(matrix.columns * matrix.rows);
    for (std::uint64_t row = 0; row < matrix.rows; ++row) {
        decode_row(matrix, row, std::span(all).subspan(row * matrix.columns, matrix.columns));
    }
    return all;
}

/// Root mean square of a - b over that of a.
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference += std::pow(double(a[i]) - double(b[i]), 2);
        size += std::pow(double(a[i]), 2);
    }
    return std::sqrt(difference / size);
}

DecoderFile decoder_at(const std::filesystem::path& path) {
    return DecoderFile::read(ModelFile::open(path.string(), Backing::Mapped));
}

}  // namespace

TEST_CASE("A made decoder is a model, the same for the same seed") {
    const TemporaryFolder folder;
    const auto path = [&](const char* name) { return (folder.path() / name).string(); };
    make_random_decoder(small_shape(), Encoding::F32, 7, path("a"));
    make_random_decoder(small_shape(), Encoding::F32, 7, path("b"));
    make_random_decoder(small_shape(), Encoding::F32, 8, path("c"));
    CHECK(content_of(path("a")) == content_of(path("b")));
    CHECK(content_of(path("a")) != content_of(path("c")));
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 3);  // no temporary file stays

    const DecoderFile made = decoder_at(path("a"));
    CHECK(made.decoder.config.kv_head_count == 2);
    CHECK(made.decoder.config.has_tied_embeddings);
    // A sample's spread is within 5 standard errors of what was asked for.
    const std::vector<float> up = all_weights(made.decoder.layers[0].up);
    double sum = 0;
    double squares = 0;
    for (const float weight : up) {
        sum += double(weight);
        squares += double(weight) * double(weight);
    }
    const double count = double(up.size());
    const double spread = 1 / std::sqrt(128.0);
    CHECK(std::abs(sum / count) < 5 * spread / std::sqrt(count));
    CHECK(std::sqrt(squares / count) == Approx(spread).epsilon(5 / std::sqrt(2 * count)));
}

TEST_CASE("The vocabulary of a made decoder takes any text, and is the same for any shape") {
    const TemporaryFolder folder;
    make_random_decoder(small_shape(), Encoding::Q8_0, 1, (folder.path() / "a").string());
    DecoderConfig other = small_shape();
    other.layer_count = 1;
    other.has_tied_embeddings = false;
    make_random_decoder(other, Encoding::F16, 2, (folder.path() / "b").string());
    const DecoderFile a = decoder_at(folder.path() / "a");
    const DecoderFile b = decoder_at(folder.path() / "b");
    const Vocabulary& vocabulary = a.tokenizer.vocabulary();
    CHECK_FALSE(first_difference(vocabulary, b.tokenizer.vocabulary()));
    const std::string text = "Where did I put the keys?  \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80\n";
    const auto ids = a.tokenizer.encode(text);
    CHECK(decode_bytes(vocabulary, ids) == text);
    CHECK(ids.size() < text.size());
    // Every made piece can be reached: its own text becomes it, or another way of the same priority.
    std::size_t reached_count = 0;
    std::size_t piece_count = 0;
    for (TokenId id = 259; vocabulary.contains(id); ++id) {
        std::string piece(vocabulary.bytes_of(id));
        if (piece.starts_with(' ') && piece.size() > 1) {
            const auto own = a.tokenizer.encode(piece.substr(1), {false, false});
            reached_count += own == std::vector<TokenId>{id} ? 1 : 0;
            ++piece_count;
        }
    }
    CHECK(piece_count > 50);
    CHECK(reached_count > piece_count * 8 / 10);
}

TEST_CASE("A shape that cannot be made says why") {
    DecoderConfig config = small_shape();
    CHECK(shape_problem(config, Encoding::Q4_0).empty());
    CHECK_THAT(shape_problem(config, Encoding::Q6_K), Catch::Contains("multiples of 256 for q6_k"));
    config.vocabulary_size = 100;
    CHECK_THAT(shape_problem(config, Encoding::F16), Catch::Contains("512 .. 1048576"));
    config = small_shape();
    config.kv_head_count = 3;
    CHECK_THAT(shape_problem(config, Encoding::F16), Catch::Contains("divide"));
    CHECK_FALSE(named_shape("3b"));
    for (const char* name : {"15m", "120m", "1.1b"}) {
        for (const Encoding encoding : {Encoding::Q4_0, Encoding::Q6_K, Encoding::Int4G128, Encoding::Fp8E4m3}) {
            CHECK(shape_problem(*named_shape(name), encoding).empty());
        }
    }
}

TEST_CASE("Quantizing keeps the model and loses no more than the encoding does") {
    const TemporaryFolder folder;
    const std::string source = (folder.path() / "source").string();
    DecoderConfig shape = small_shape();
    shape.width = 256;
    shape.head_dim = 64;
    shape.rope.dimension_count = 64;
    make_random_decoder(shape, Encoding::F16, 3, source);
    const DecoderFile before = decoder_at(source);
    const std::vector<float> weights = all_weights(before.decoder.layers[1].down);
    // A uniform grid of n steps over +-3 sigma leaves about 6 / n / sqrt(12) of a sigma.
    const std::pair<Encoding, double> bounds[] = {
        {Encoding::Q8_0, 0.01},    {Encoding::Q6_K, 0.03},    {Encoding::Q4_0, 0.12},
        {Encoding::Q4_1, 0.1},     {Encoding::Int4G32, 0.09}, {Encoding::Int4G128, 0.11},
        {Encoding::Fp8E4m3, 0.04}, {Encoding::Fp8E5m2, 0.08}, {Encoding::F16, 0}};
    for (const auto& [encoding, bound] : bounds) {
        const std::string target = (folder.path() / std::string(name_of(encoding))).string();
        quantize(source, target, {.encoding = encoding});
        const DecoderFile after = decoder_at(target);
        const double error = relative_error(weights, all_weights(after.decoder.layers[1].down));
        INFO(name_of(encoding) << " " << error);
        CHECK(error <= bound);
        CHECK((error > bound / 4 || bound == 0));
        CHECK(after.decoder.output.encoding == encoding);
        CHECK_FALSE(first_difference(before.tokenizer.vocabulary(), after.tokenizer.vocabulary()));
        CHECK(after.decoder.bytes_per_pass() <= before.decoder.bytes_per_pass());
        // perceptd's own encodings can be quantized again.
        const std::string again = target + "-again";
        quantize(target, again, {.encoding = Encoding::Q8_0});
        CHECK(decoder_at(again).decoder.output.encoding == Encoding::Q8_0);
    }
}

TEST_CASE("A calibration moves the error to where it does not matter") {
    const TemporaryFolder folder;
    const auto path = [&](const char* name) { return (folder.path() / name).string(); };
    make_random_decoder(small_shape(), Encoding::F16, 5, path("source"));
    const auto write_calibration = [&](const char* name, std::uint64_t columns, float last) {
        GgufWriter writer;
        writer.add_tensor("blk.0.ffn_up.weight.importance", TensorType::F32, std::span(&columns, 1));
        auto bytes = whole_file(writer);
        const std::size_t start = writer.header().size();
        for (std::size_t i = 0; i < columns; ++i) {
            const float value = i + 1 == columns ? last : (i % 4 == 0 ? 1000.0F : 0.001F);
            std::memcpy(bytes.data() + start + 4 * i, &value, 4);
        }
        put_file(path(name), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    };
    write_calibration("good", 128, 1);
    quantize(path("source"), path("plain"), {.encoding = Encoding::Int4G32});
    quantize(path("source"), path("weighted"), {.encoding = Encoding::Int4G32, .calibration_path = path("good")});
    const std::vector<float> exact = all_weights(decoder_at(path("source")).decoder.layers[0].up);
    const auto error_of = [&](const char* name) {
        const std::vector<float> stored = all_weights(decoder_at(path(name)).decoder.layers[0].up);
        double error = 0;
        for (std::size_t i = 0; i < stored.size(); i += 4) {
            error += std::pow(double(stored[i]) - double(exact[i]), 2);
        }
        return error;
    };
    CHECK(error_of("weighted") < 0.8 * error_of("plain"));
    write_calibration("length", 64, 1);
    DecoderConfig huge = small_shape();
    huge.width = 100'096;
    huge.layer_count = 1000;
    CHECK_THROWS_WITH(make_random_decoder(huge, Encoding::F32, 1, path("huge")), Catch::Contains("are free"));
    CHECK_FALSE(std::filesystem::exists(path("huge")));
    const std::string before = content_of(path("source"));
    CHECK_THROWS_WITH(quantize(path("source"), path("source"), {.encoding = Encoding::Q4_0}),
                      Catch::Contains("is the input"));
    CHECK(content_of(path("source")) == before);
    CHECK_THROWS_WITH(
        quantize(path("source"), path("x"), {.encoding = Encoding::Int4G32, .calibration_path = path("length")}),
        Catch::Contains("64 values for 128 columns"));
    write_calibration("nan", 128, NAN);
    CHECK_THROWS_WITH(
        quantize(path("source"), path("x"), {.encoding = Encoding::Int4G32, .calibration_path = path("nan")}),
        Catch::Contains("must be finite"));
    CHECK_THROWS_WITH(
        quantize(path("source"), path("x"), {.encoding = Encoding::Int4G32, .calibration_path = path("source")}),
        Catch::Contains("a calibration holds"));
    CHECK_FALSE(std::filesystem::exists(path("x")));
}

TEST_CASE("A packed folder is a package that loads") {
    const TemporaryFolder root;
    const auto folder = root.path() / "demo";
    put_folder(folder);
    put_file(folder / "model.gguf", small_decoder());
    put_file(folder / "draft.gguf", small_decoder());
    PackOptions options;
    options.folder = folder.string();
    CHECK_THROWS_WITH(pack(options), Catch::Contains("--name, --version and --licence"));
    options.name = "demo";
    options.version = "1.0.0";
    options.licence = "CC0-1.0";
    CHECK_THROWS_WITH(pack(options), Catch::Contains("more than one .gguf file"));
    options.model_file = "model.gguf";
    options.draft_file = "draft.gguf";
    pack(options);
    const LoadedModel loaded = LoadedModel::load(Package::open(folder.string()), "cpu", Backing::Mapped);
    CHECK(loaded.draft.has_value());
    CHECK(loaded.manifest.tokenizer_sha256 == loaded.main.tokenizer.vocabulary().digest());

    PackOptions newer;  // the rest stays as it was
    newer.folder = folder.string();
    newer.version = "1.1.0";
    CHECK(pack(newer).draft_file == "draft.gguf");
    CHECK(Package::open(folder.string()).manifest().version.text == "1.1.0");

    put_file(folder / "draft.gguf", small_decoder(1));
    CHECK_THROWS_WITH(pack(newer), Catch::Contains("the draft has another vocabulary: token 260"));
    put_file(folder / "draft.gguf", small_decoder());
    std::string with_nan = small_decoder();
    with_nan.replace(with_nan.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
    put_file(folder / "model.gguf", with_nan);
    CHECK_THROWS_WITH(pack(newer), Catch::Contains("is not a finite number"));
    put_file(folder / "model.gguf", "GGUF");
    CHECK_THROWS_AS(pack(newer), Error);
    std::filesystem::create_symlink("model.gguf", folder / "link");
    CHECK_THROWS_WITH(pack(newer), Catch::Contains("symbolic link"));
}

TEST_CASE("An inspection says what is there and what is wrong") {
    const TemporaryFolder root;
    put_file(root.path() / "good", small_decoder());
    const auto json_of = [&](const char* name) {
        return nlohmann::json::parse(inspect((root.path() / name).string(), true).text);
    };
    CHECK(json_of("good")["usable"] == true);
    CHECK(json_of("good")["decoder"]["width"] == 32);
    CHECK(json_of("good")["tokenizer"]["tokens"] == 260);
    put_file(root.path() / "cut", small_decoder().substr(0, 100));
    CHECK(json_of("cut")["usable"] == false);
    CHECK_THAT(json_of("cut")["file_error"].get<std::string>(), Catch::Contains("byte "));
    GgufWriter writer;
    writer.add_text("general.architecture", "mamba");
    const auto bytes = whole_file(writer);
    put_file(root.path() / "other", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    CHECK(json_of("other")["metadata"]["general.architecture"] == "mamba");
    CHECK_THAT(json_of("other")["decoder_error"].get<std::string>(), Catch::Contains("llama and qwen2"));
    CHECK_FALSE(inspect(root.path().string(), true).is_usable);
    CHECK_THAT(inspect((root.path() / "good").string(), false).text, Catch::Contains("width 32"));
}

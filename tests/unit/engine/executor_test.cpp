#include "engine/executor.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "../../support/random_decoder.hpp"
#include "base/hot_path.hpp"
#include "graph/fuse.hpp"

namespace perceptd::engine {
namespace {

using support::random_decoder;
using support::RandomDecoderOptions;

/// A model, its packed weights, a cache and an executor.
struct Machine {
    explicit Machine(const RandomDecoderOptions& options, std::size_t workers = 1,
                     const graph::FusionOptions& fusion = {}, KvFormat format = KvFormat::F16)
        : bytes(random_decoder(options)),
          file(model::Gguf::parse(bytes, "random")),
          decoder(model::read_decoder(file)),
          team({.worker_count = workers, .cpu_indices = {}}),
          weights(PackedDecoder::pack(decoder, team)) {
        const model::DecoderConfig& config = decoder.config;
        shape = {config.layer_count, config.kv_head_count, config.head_dim, format};
        const graph::Graph graph = graph::fuse(
            graph::build_decoder(decoder_shape_of(config), [&](std::string_view name, std::uint32_t,
                                                               std::uint32_t) { return weights.form_of(name); }),
            fusion);
        executor = std::make_unique<Executor>(
            graph, config, weights, team,
            ExecutorOptions{.limits = {.tokens_max = 64, .logit_rows_max = 64, .positions_max = 128},
                            .kv = shape,
                            .positions_max = 256});
        pool.resize(shape.page_bytes() * kPageCount);
        pages.resize(kPageCount);
        std::iota(pages.begin(), pages.end(), 0U);
    }

    Status run(const std::vector<std::uint32_t>& tokens, std::uint32_t first, std::vector<std::uint32_t> rows) {
        const Pass pass{
            .token_ids = tokens, .first_position = first, .logit_rows = rows, .kv = {shape, pool.data(), pages}};
        return executor->run(pass);
    }

    /// Logits of every token of `tokens`, in passes of `width`.
    std::vector<std::vector<float>> logits(const std::vector<std::uint32_t>& tokens, std::size_t width) {
        std::vector<std::vector<float>> all;
        for (std::size_t at = 0; at < tokens.size(); at += width) {
            const std::size_t count = std::min(width, tokens.size() - at);
            std::vector<std::uint32_t> rows(count);
            std::iota(rows.begin(), rows.end(), 0U);
            REQUIRE(run({tokens.begin() + static_cast<long>(at), tokens.begin() + static_cast<long>(at + count)},
                        static_cast<std::uint32_t>(at), rows) == Status::Ok);
            for (std::size_t row = 0; row < count; ++row) {
                const float* const values = executor->logits().row(row);
                all.emplace_back(values, values + decoder.config.vocabulary_size);
            }
        }
        return all;
    }

    static constexpr std::size_t kPageCount = 6;
    std::vector<std::byte> bytes;
    model::Gguf file;
    model::Decoder decoder;
    WorkerTeam team;
    PackedDecoder weights;
    KvShape shape;
    std::unique_ptr<Executor> executor;
    std::vector<std::byte> pool;
    std::vector<std::uint32_t> pages;
};

std::vector<std::uint32_t> some_tokens(std::size_t count) {
    std::vector<std::uint32_t> tokens(count);
    for (std::size_t i = 0; i < count; ++i) {
        tokens[i] = static_cast<std::uint32_t>((i * 7919 + 13) % 320);
    }
    return tokens;
}

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
               return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
           });
}

double kl_divergence(const std::vector<double>& reference, const std::vector<float>& found) {
    const auto log_sum = [](const auto& values) {
        const double top = *std::max_element(values.begin(), values.end());
        double sum = 0;
        for (const double value : values) {
            sum += std::exp(value - top);
        }
        return top + std::log(sum);
    };
    const double a = log_sum(reference);
    const double b = log_sum(found);
    double kl = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        kl += std::exp(reference[i] - a) * (reference[i] - a - (static_cast<double>(found[i]) - b));
    }
    return kl;
}

}  // namespace

TEST_CASE("logits agree with the plain formulas in double, for every encoding") {
    const auto encoding =
        GENERATE(model::Encoding::F32, model::Encoding::F16, model::Encoding::Bf16, model::Encoding::Q8_0,
                 model::Encoding::Q4_0, model::Encoding::Q4_1, model::Encoding::Int4G32, model::Encoding::Int4G128,
                 model::Encoding::Fp8E4m3, model::Encoding::Fp8E5m2);
    CAPTURE(model::name_of(encoding));
    RandomDecoderOptions options;
    options.encoding = encoding;
    options.qwen2 = encoding == model::Encoding::Q8_0;  // biases and the other rotary order once
    Machine machine(options);
    const std::vector<std::uint32_t> tokens = some_tokens(40);
    const auto found = machine.logits(tokens, 40);
    const std::vector<double> wanted = support::reference_logits(machine.decoder, tokens);
    // Float weights see float activations: only the F16 cache rounds. Integer ones see 8-bit activations.
    const bool is_float = !is_integer(machine.weights.find("blk.0.attn_q.weight")->matrix.kind);
    CHECK(kl_divergence(wanted, found.back()) < (is_float ? 1e-6 : 2e-3));
}

TEST_CASE("the same bits for every batch width and every number of workers") {
    RandomDecoderOptions options;
    options.encoding = GENERATE(model::Encoding::Q4_0, model::Encoding::Q8_0, model::Encoding::F16);
    const std::vector<std::uint32_t> tokens = some_tokens(48);
    Machine alone(options);
    const auto one_by_one = alone.logits(tokens, 1);
    for (const std::size_t width : {2, 5, 8, 9, 16}) {
        CAPTURE(width);
        CHECK(same_bits(Machine(options).logits(tokens, width), one_by_one));
    }
    CHECK(same_bits(Machine(options, 2).logits(tokens, 5), one_by_one));
    CHECK(same_bits(Machine(options, 3).logits(tokens, 1), one_by_one));
    if (options.encoding == model::Encoding::Q4_0) {
        for (const KvFormat format : {KvFormat::F32, KvFormat::Q8, KvFormat::Fp8E4m3}) {
            CAPTURE(static_cast<int>(format));
            const auto single = Machine(options, 1, {}, format).logits(tokens, 1);
            CHECK_FALSE(same_bits(single, one_by_one));  // the format is really in use
            CHECK(same_bits(Machine(options, 2, {}, format).logits(tokens, 9), single));
        }
    }
}

/// The largest difference of any two logits, relative to the largest logit.
double relative_difference(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
    double largest = 0;
    double error = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < a[i].size(); ++j) {
            largest = std::max(largest, std::abs(static_cast<double>(a[i][j])));
            error = std::max(error, std::abs(static_cast<double>(a[i][j]) - static_cast<double>(b[i][j])));
        }
    }
    return error / largest;
}

TEST_CASE("fused and unfused graphs: the same bits, but for attention's other order") {
    RandomDecoderOptions options;
    const std::vector<std::uint32_t> tokens = some_tokens(40);
    const auto fused = Machine(options).logits(tokens, 10);
    CHECK(same_bits(Machine(options, 2, {false, true, false, false, false}).logits(tokens, 10), fused));
    CHECK(same_bits(Machine(options, 1, {true, true, false, true, true}).logits(tokens, 10), fused));
    const graph::FusionOptions none{false, false, false, false, false};
    // An activation that falls on the other side of a rounding step moves a little more than the sums themselves.
    CHECK(relative_difference(Machine(options, 2, none).logits(tokens, 10), fused) < 2e-2);
    options.encoding = model::Encoding::F16;
    CHECK(relative_difference(Machine(options, 2, none).logits(tokens, 10), Machine(options).logits(tokens, 10)) <
          1e-4);
}

TEST_CASE("counted bytes are the predicted bytes") {
    RandomDecoderOptions options;
    options.tied = GENERATE(false, true);
    const bool fuse = GENERATE(true, false);
    const KvFormat format = GENERATE(KvFormat::F16, KvFormat::Q8, KvFormat::Fp8E4m3);
    Machine machine(options, 2, {fuse, fuse, fuse, fuse, fuse}, format);
    const std::uint64_t kv_bytes = machine.shape.position_bytes() / machine.shape.layers;
    std::uint32_t first = 0;
    for (const std::uint32_t count : {1U, 5U, 40U, 1U, 17U}) {
        REQUIRE(machine.run(some_tokens(count), first, {count - 1}) == Status::Ok);
        const graph::Traffic wanted = graph::predict(
            machine.executor->graph(), {.tokens = count, .positions_before = first, .logit_rows = 1}, kv_bytes);
        CAPTURE(count, first, fuse);
        CHECK(machine.executor->traffic().weight_bytes == wanted.weight_bytes);
        CHECK(machine.executor->traffic().kv_read_bytes == wanted.kv_read_bytes);
        CHECK(machine.executor->traffic().kv_write_bytes == wanted.kv_write_bytes);
        first += count;
    }
}

TEST_CASE("a run allocates nothing") {
    Machine machine({}, 2);
    const std::vector<std::uint32_t> tokens = some_tokens(8);
    const std::vector<std::uint32_t> rows{7};
    const Pass pass{.token_ids = tokens, .logit_rows = rows, .kv = {machine.shape, machine.pool.data(), machine.pages}};
    REQUIRE(machine.executor->run(pass) == Status::Ok);
    const hot_path::Scope hot;
    const std::uint64_t before = hot_path::allocation_count();
    REQUIRE(machine.executor->run(pass) == Status::Ok);
    CHECK(hot_path::allocation_count() == before);
}

TEST_CASE("soft tokens are rows of floats: an embedding given as one gives the bits of its token") {
    RandomDecoderOptions options;
    Machine machine(options);
    const std::vector<std::uint32_t> tokens = some_tokens(6);
    const auto wanted = machine.logits(tokens, 6);
    std::vector<float> rows(2 * options.width);
    for (std::size_t i = 0; i < 2; ++i) {
        model::decode_row(machine.decoder.token_embedding, tokens[i + 1],
                          std::span(rows).subspan(i * options.width, options.width));
    }
    std::vector<std::uint32_t> mixed = tokens;
    mixed[1] = mixed[2] = kSoftToken;
    const std::vector<std::uint32_t> last{5};
    const Pass pass{.token_ids = mixed,
                    .embeddings = {rows.data(), options.width},
                    .logit_rows = last,
                    .kv = {machine.shape, machine.pool.data(), machine.pages}};
    REQUIRE(machine.executor->run(pass) == Status::Ok);
    CHECK(std::memcmp(machine.executor->logits().row(0), wanted[5].data(), wanted[5].size() * sizeof(float)) == 0);
}

TEST_CASE("a pass that cannot be answered is refused, and the next one works") {
    Machine machine({});
    const auto run = [&](std::vector<std::uint32_t> tokens, std::uint32_t first, std::vector<std::uint32_t> rows) {
        return machine.run(tokens, first, std::move(rows));
    };
    CHECK(run({}, 0, {}) == Status::Invalid);
    CHECK(run({320}, 0, {0}) == Status::Invalid);         // beyond the vocabulary
    CHECK(run({kSoftToken}, 0, {0}) == Status::Invalid);  // no embedding given
    CHECK(run({1}, 192, {0}) == Status::Invalid);         // beyond the cache
    CHECK(run({1}, 0xFFFFFFFF, {0}) == Status::Invalid);
    CHECK(run({1, 2}, 0, {2}) == Status::Invalid);           // a row that is no token
    CHECK(run(some_tokens(65), 0, {0}) == Status::Invalid);  // more than the plan holds
    CHECK(run({1}, 0, {0}) == Status::Ok);
}

TEST_CASE("an embedding that is no number is an error, never an answer") {
    RandomDecoderOptions options;
    Machine machine(options);
    std::vector<float> row(options.width, 0.5F);
    row[17] = std::nanf("");
    const std::vector<std::uint32_t> tokens{kSoftToken};
    const std::vector<std::uint32_t> rows{0};
    const Pass pass{.token_ids = tokens,
                    .embeddings = {row.data(), options.width},
                    .logit_rows = rows,
                    .kv = {machine.shape, machine.pool.data(), machine.pages}};
    CHECK(machine.executor->run(pass) == Status::NotFinite);
}

}  // namespace perceptd::engine

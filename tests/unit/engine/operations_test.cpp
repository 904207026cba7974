// Operations: fused and unfused forms, thread counts and placements give the same bits; bytes are counted exactly.
#include "engine/operations.hpp"

#include <catch2/catch.hpp>
#include <cstring>

#include "base/hot_path.hpp"
#include "engine/attention.hpp"
#include "sample_weights.hpp"

using namespace perceptd;
using namespace perceptd::engine;

namespace {

constexpr std::size_t kHidden = 128;
constexpr std::size_t kInner = 192;
constexpr std::size_t kDimension = 32;
constexpr std::size_t kQueryHeads = 4;
constexpr std::size_t kKvHeads = 2;

/// One attention and feed-forward layer, written as an executor would.
struct Layer {
    SampleWeights q{WeightKind::Q4_0, kQueryHeads* kDimension, kHidden, 1};
    SampleWeights k{WeightKind::Q8_0, kKvHeads* kDimension, kHidden, 2};
    SampleWeights v{WeightKind::Q4_1, kKvHeads* kDimension, kHidden, 3};
    SampleWeights o{WeightKind::Int4G32, kHidden, kQueryHeads* kDimension, 4};
    SampleWeights gate{WeightKind::Q4_0, kInner, kHidden, 5};
    SampleWeights up{WeightKind::Q8_0, kInner, kHidden, 6};
    SampleWeights down{WeightKind::Q8_0, kHidden, kInner, 7};
    std::vector<float> norm = std::vector<float>(kHidden, 0.9F);
    std::vector<float> bias = std::vector<float>(kHidden, 0.01F);
    RotaryTable rotary{kDimension, 64, 10000.0};

    struct Run {
        std::vector<float> state;
        std::vector<std::byte> pool;
        TrafficCounter traffic;
        bool fault = false;
    };

    Run run(const KernelTable& kernels, std::size_t workers, std::size_t tokens, bool fused, float poison = 0.0F) {
        const WeightView wq = q.pack_now(), wk = k.pack_now(), wv = v.pack_now(), wo = o.pack_now();
        const WeightView wg = gate.pack_now(), wu = up.pack_now(), wd = down.pack_now();
        Run run;
        run.state.resize(tokens * kHidden);
        std::mt19937 random(8);
        for (float& x : run.state) {
            x = std::ldexp(static_cast<float>(random() % 65537) - 32768.0F, -15);
        }
        run.state[5] += poison;
        const KvShape shape{1, kKvHeads, kDimension, KvFormat::F16};
        run.pool.resize(2 * shape.page_bytes());
        const std::vector<std::uint32_t> pages{1, 0};
        const KvView kv{shape, run.pool.data(), pages};
        std::vector<std::uint32_t> places(tokens);
        for (std::size_t i = 0; i < tokens; ++i) {
            places[i] = static_cast<std::uint32_t>(i);
        }
        const std::size_t groups = kHidden / 32;
        std::vector<std::vector<ActivationGroup>> own(workers, std::vector<ActivationGroup>(tokens * groups));
        std::vector<std::vector<float>> scratch(workers, std::vector<float>(kHidden));
        std::vector<ActivationGroup> shared(tokens * kInner / 32);
        std::vector<float> queries(tokens * kHidden), mixed(tokens * kHidden), normed(tokens * kHidden);
        std::vector<float> inner(tokens * kInner), part(tokens * kHidden);
        FaultFlag fault{false};
        WorkerTeam team({.worker_count = workers, .cpu_indices = {}});
        const FloatView state{run.state.data(), kHidden};
        const NormWeights norms{norm.data(), nullptr, 1e-5F, false};
        QkvWeights qkv;
        qkv.q = wq;
        qkv.k = wk;
        qkv.v = wv;
        qkv.k_bias = bias.data();
        qkv.q_norm = norm.data();
        qkv.rotary = &rotary;
        AttentionTask task;
        task.queries = {queries.data(), kHidden};
        task.out = {mixed.data(), kHidden};
        task.tokens = tokens;
        task.query_heads = kQueryHeads;
        task.score_scale = 0.2F;
        task.kv = kv;
        auto program = [&](Worker& worker) noexcept {
            ActivationGroup* codes = fused ? own[worker.index()].data() : shared.data();
            const auto norm_and_quantize = [&] {
                if (fused) {
                    normalize_quantize(worker, kernels, Placement::EachWorker, state, tokens, kHidden, norms, nullptr,
                                       scratch[worker.index()].data(), codes, groups, fault);
                    return;
                }
                normalize(worker, kernels, Placement::Shared, state, tokens, kHidden, norms, {normed.data(), kHidden});
                worker.barrier();
                quantize(worker, kernels, Placement::Shared, {normed.data(), kHidden}, tokens, kHidden, nullptr, codes,
                         groups, fault);
                worker.barrier();
            };
            norm_and_quantize();
            const LinearInput input{{codes, groups}, {}, tokens};
            project_qkv(worker, kernels, qkv, input, {places.data(), places.data()}, kv, 0, {queries.data(), kHidden},
                        fault);
            worker.barrier();
            attention(worker, kernels, task);
            worker.barrier();
            quantize(worker, kernels, Placement::Shared, {mixed.data(), kHidden}, tokens, kHidden, nullptr,
                     shared.data(), groups, fault);
            worker.barrier();
            const LinearInput attended{{shared.data(), groups}, {}, tokens};
            const MutableFloatView out{run.state.data(), kHidden};
            if (fused) {
                linear(worker, kernels, wo, attended, {bias.data(), state}, out);
                worker.barrier();
            } else {
                linear(worker, kernels, wo, attended, {bias.data(), {}}, {part.data(), kHidden});
                worker.barrier();
                worker.share(
                    tokens, [&](std::size_t t) { kernels.add(&part[t * kHidden], state.row(t), kHidden, out.row(t)); });
                worker.barrier();
            }
            norm_and_quantize();
            if (fused) {
                gated_linear_quantize(worker, kernels, wg, wu, input, nullptr, shared.data(), kInner / 32, fault);
            } else {
                gated_linear(worker, kernels, wg, wu, input, {inner.data(), kInner});
                worker.barrier();
                quantize(worker, kernels, Placement::Shared, {inner.data(), kInner}, tokens, kInner, nullptr,
                         shared.data(), kInner / 32, fault);
            }
            worker.barrier();
            linear(worker, kernels, wd, {{shared.data(), kInner / 32}, {}, tokens}, {nullptr, state}, out);
        };
        const std::uint64_t before = hot_path::allocation_count();
        {
            const hot_path::Scope hot;
            REQUIRE(team.run(program));
        }
        REQUIRE(hot_path::allocation_count() == before);
        run.traffic = team.take_traffic();
        run.fault = fault.load();
        return run;
    }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b, std::size_t count) {
    return std::memcmp(a.data(), b.data(), count * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("a layer has the same bits fused or not, on any team, set and batch, and allocates nothing") {
    Layer layer;
    const Layer::Run expected = layer.run(kernels_of(InstructionSet::Portable), 1, 40, false);
    REQUIRE_FALSE(expected.fault);
    for (const KernelTable* table : available_tables()) {
        for (const std::size_t workers : {1U, 2U, 4U}) {
            for (const bool fused : {false, true}) {
                const Layer::Run run = layer.run(*table, workers, 40, fused);
                INFO(name_of(table->set) << " workers " << workers << " fused " << fused);
                REQUIRE_FALSE(run.fault);
                REQUIRE(same_bits(run.state, expected.state, run.state.size()));
                REQUIRE(run.pool == expected.pool);
            }
        }
        for (const std::size_t tokens : {1U, 5U, 13U}) {
            const Layer::Run run = layer.run(*table, 2, tokens, true);
            REQUIRE(same_bits(run.state, expected.state, run.state.size()));
        }
    }
}

TEST_CASE("a NaN in the state is reported, never computed on in silence") {
    Layer layer;
    CHECK(layer.run(kernels_of(chosen_instruction_set()), 2, 3, true, std::nanf("")).fault);
    CHECK(layer.run(kernels_of(chosen_instruction_set()), 2, 3, false, INFINITY).fault);
}

TEST_CASE("weight, activation and KV bytes equal their closed form") {
    Layer layer;
    constexpr std::size_t kTokens = 5;
    const TrafficCounter counted = layer.run(kernels_of(chosen_instruction_set()), 2, kTokens, true).traffic;
    const auto bytes = [](WeightKind kind, std::size_t rows, std::size_t columns) {
        return WeightView{kind, rows, columns}.bytes();
    };
    CHECK(counted.weight_bytes == bytes(WeightKind::Q4_0, 128, kHidden) + bytes(WeightKind::Q8_0, 64, kHidden) +
                                      bytes(WeightKind::Q4_1, 64, kHidden) + bytes(WeightKind::Int4G32, kHidden, 128) +
                                      bytes(WeightKind::Q4_0, kInner, kHidden) +
                                      bytes(WeightKind::Q8_0, kInner, kHidden) +
                                      bytes(WeightKind::Q8_0, kHidden, kInner));
    CHECK(bytes(WeightKind::Q4_0, 128, kHidden) == 128 * kHidden * 9 / 16);
    CHECK(counted.kv_write_bytes == kTokens * 2 * kKvHeads * kDimension * 2);
    CHECK(counted.kv_read_bytes == kTokens * 2 * kKvHeads * kDimension * 2);
    const std::size_t seen = kTokens * (kTokens + 1) / 2;
    CHECK(counted.multiply_count ==
          kTokens * (128 * kHidden * 2 + 128 * kHidden + 3 * kInner * kHidden) + seen * kQueryHeads * kDimension * 2);
}

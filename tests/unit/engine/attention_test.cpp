// Attention against brute force in double, and its promise: a query's bits do not depend on what runs beside it.
#include "engine/attention.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "sample_weights.hpp"

using namespace perceptd::engine;

namespace {

std::vector<float> random_values(std::size_t count, std::uint_fast32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> values(count);
    for (float& x : values) {
        x = std::ldexp(static_cast<float>(random() % 65537) - 32768.0F, -14);
    }
    return values;
}

/// A cache of one layer with random rows in shuffled pages; unused memory is NaN.
struct Cache {
    KvShape shape;
    std::vector<std::uint32_t> table;
    std::vector<std::byte> pool;
    std::vector<float> keys;  ///< [slot][head][d], as decoded
    std::vector<float> values;

    Cache(std::size_t heads, std::size_t dimension, KvFormat format, std::size_t slots, std::uint_fast32_t seed)
        : shape{1, heads, dimension, format} {
        const std::size_t pages = (slots + 31) / 32;
        for (std::size_t p = 0; p < pages; ++p) {
            table.push_back(static_cast<std::uint32_t>((p * 7 + 3) % (pages + 5)));
        }
        if (pages % 7 == 0 || (pages + 5) % 7 == 0) {
            for (std::size_t p = 0; p < pages; ++p) {
                table[p] = static_cast<std::uint32_t>(pages - 1 - p);
            }
        }
        pool.assign((pages + 5) * shape.page_bytes(), std::byte{0xFF});
        keys = random_values(slots * heads * dimension, seed);
        values = random_values(slots * heads * dimension, seed + 1);
        for (std::size_t slot = 0; slot < slots; ++slot) {
            write(slot, slot);
        }
    }
    [[nodiscard]] KvView view() { return {shape, pool.data(), table}; }
    /// Writes the rows of `from` to slot `to`.
    void write(std::size_t from, std::size_t to) {
        const KernelTable& table_of_kernels = kernels_of(InstructionSet::Portable);
        for (std::size_t head = 0; head < shape.kv_heads; ++head) {
            float* key = row(keys, from, head);
            float* value = row(values, from, head);
            std::byte* k = view().key_row(0, head, to);
            std::byte* v = view().value_row(0, head, to);
            REQUIRE(table_of_kernels.encode_kv(shape.format, key, shape.head_dimension, k));
            REQUIRE(table_of_kernels.encode_kv(shape.format, value, shape.head_dimension, v));
            table_of_kernels.decode_kv(shape.format, k, shape.head_dimension, key);
            table_of_kernels.decode_kv(shape.format, v, shape.head_dimension, value);
        }
    }
    float* row(std::vector<float>& all, std::size_t slot, std::size_t head) {
        return &all[(slot * shape.kv_heads + head) * shape.head_dimension];
    }
};

std::vector<float> run(const KernelTable& kernels, AttentionTask task, std::size_t workers = 1) {
    const std::size_t width = task.query_heads * task.kv.shape.head_dimension;
    std::vector<float> out(task.tokens * width);
    task.out = {out.data(), width};
    WorkerTeam team({.worker_count = workers, .cpu_indices = {}});
    auto program = [&](Worker& worker) noexcept { attention(worker, kernels, task); };
    team.run(program);
    return out;
}

/// Worst error of one query head against double, and the bound that float arithmetic allows.
void check_against_double(Cache& cache, const AttentionTask& task, const std::vector<float>& out) {
    const std::size_t d = task.kv.shape.head_dimension;
    const std::size_t group = task.query_heads / task.kv.shape.kv_heads;
    for (std::size_t token = 0; token < task.tokens; ++token) {
        const VisibleRange visible = visible_range_of(task, token);
        for (std::size_t h = 0; h < task.query_heads; ++h) {
            const float* q = task.queries.row(token) + h * d;
            std::vector<double> weights;
            double largest = -1e300;
            for (std::size_t p = visible.begin; p < visible.end; ++p) {
                double score = 0.0;
                for (std::size_t i = 0; i < d; ++i) {
                    score += static_cast<double>(q[i]) * static_cast<double>(cache.row(cache.keys, p, h / group)[i]);
                }
                weights.push_back(score * static_cast<double>(task.score_scale));
                largest = std::max(largest, weights.back());
            }
            double total = 0.0;
            for (double& w : weights) {
                w = std::exp(w - largest);
                total += w;
            }
            for (std::size_t i = 0; i < d; ++i) {
                double exact = 0.0;
                for (std::size_t p = visible.begin; p < visible.end; ++p) {
                    exact += weights[p - visible.begin] / total *
                             static_cast<double>(cache.row(cache.values, p, h / group)[i]);
                }
                // Scores up to about 30 with relative error d/8 * 2^-24 make exp's relative error about 1e-5.
                REQUIRE(std::fabs(static_cast<double>(out[(token * task.query_heads + h) * d + i]) - exact) < 4e-5);
            }
        }
    }
}

AttentionTask task_of(Cache& cache, const std::vector<float>& queries, std::size_t tokens, std::size_t query_heads,
                      std::size_t first) {
    AttentionTask task;
    task.queries = {queries.data(), query_heads * cache.shape.head_dimension};
    task.tokens = tokens;
    task.query_heads = query_heads;
    task.first_position = first;
    task.score_scale = 1.0F / std::sqrt(static_cast<float>(cache.shape.head_dimension));
    task.kv = cache.view();
    return task;
}

}  // namespace

TEST_CASE("attention is softmax(qK)V in every format, with groups, windows and encoders") {
    for (const KvFormat format : {KvFormat::F32, KvFormat::F16, KvFormat::Q8, KvFormat::Fp8E4m3}) {
        for (const std::size_t d : {std::size_t{32}, std::size_t{64}, std::size_t{96}, std::size_t{256}}) {
            Cache cache(2, d, format, 101, 17);
            const std::vector<float> queries = random_values(20 * 6 * d, 3);
            AttentionTask task = task_of(cache, queries, 20, 6, 81);
            for (const std::size_t window : {std::size_t{0}, std::size_t{5}, std::size_t{40}}) {
                task.window = window;
                const std::vector<float> expected = run(kernels_of(InstructionSet::Portable), task);
                check_against_double(cache, task, expected);
                for (const KernelTable* table : available_tables()) {
                    REQUIRE(run(*table, task, 2) == expected);
                }
            }
            task.window = 0;
            task.visible_count = 101;
            check_against_double(cache, task, run(kernels_of(chosen_instruction_set()), task));
        }
    }
}

TEST_CASE("a query has the same bits alone and in any batch") {
    Cache cache(2, 64, KvFormat::F16, 200, 5);
    const std::vector<float> queries = random_values(100 * 4 * 64, 9);
    const KernelTable& kernels = kernels_of(chosen_instruction_set());
    const std::vector<float> whole = run(kernels, task_of(cache, queries, 100, 4, 100), 2);
    for (const std::size_t token : {0U, 1U, 27U, 28U, 29U, 63U, 99U}) {
        for (const std::size_t width : {1U, 5U, 17U}) {
            const std::size_t count = std::min(width, 100 - token);
            const std::vector<float> one(queries.begin() + static_cast<std::ptrdiff_t>(token * 256),
                                         queries.begin() + static_cast<std::ptrdiff_t>((token + count) * 256));
            const std::vector<float> out = run(kernels, task_of(cache, one, count, 4, 100 + token));
            REQUIRE(std::memcmp(out.data(), &whole[token * 256], out.size() * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("a branch of a tree has the bits of the plain sequence") {
    // Slots 0..59 are the sequence; 60.. hold two branches, interleaved, across a tile's edge at 64.
    constexpr std::size_t kBase = 60;
    constexpr std::size_t kDepth = 9;
    Cache cache(1, 64, KvFormat::Q8, kBase + 2 * kDepth, 31);
    Cache plain = cache;
    const std::vector<float> queries = random_values(2 * kDepth * 2 * 64, 4);
    std::vector<std::uint32_t> depths;
    std::vector<std::uint32_t> slots(2 * kDepth * kDepth);
    for (std::size_t i = 0; i < 2 * kDepth; ++i) {
        depths.push_back(static_cast<std::uint32_t>(i / 2));
        for (std::size_t j = 0; j <= i / 2; ++j) {
            slots[i * kDepth + j] = static_cast<std::uint32_t>(kBase + 2 * j + i % 2);
        }
    }
    const TreePaths tree{kBase, depths.data(), slots.data(), kDepth};
    AttentionTask task = task_of(cache, queries, 2 * kDepth, 2, 0);
    task.tree = &tree;
    for (const KernelTable* table : available_tables()) {
        const std::vector<float> verified = run(*table, task, 2);
        for (std::size_t branch = 0; branch < 2; ++branch) {
            for (std::size_t j = 0; j < kDepth; ++j) {
                plain.write(kBase + 2 * j + branch, kBase + j);
                plain.keys = cache.keys;
                plain.values = cache.values;
                const std::size_t i = 2 * j + branch;
                const std::vector<float> q(queries.begin() + static_cast<std::ptrdiff_t>(i * 128),
                                           queries.begin() + static_cast<std::ptrdiff_t>((i + 1) * 128));
                const std::vector<float> alone = run(*table, task_of(plain, q, 1, 2, kBase + j));
                REQUIRE(std::memcmp(alone.data(), &verified[i * 128], alone.size() * sizeof(float)) == 0);
            }
        }
    }
}

TEST_CASE("an accepted path is moved by copying slots") {
    Cache cache(2, 32, KvFormat::F16, 70, 2);
    copy_slot(cache.view(), 69, 40);
    for (std::size_t head = 0; head < 2; ++head) {
        CHECK(std::memcmp(cache.view().key_row(0, head, 69), cache.view().key_row(0, head, 40), 64) == 0);
        CHECK(std::memcmp(cache.view().value_row(0, head, 69), cache.view().value_row(0, head, 40), 64) == 0);
    }
}

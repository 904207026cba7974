// Prints one digest a line for every kernel on the chosen instruction set. Two machines, or two sets on one machine,
// must print the same text (engine_bits.py compares x86-64 with AArch64).
#include <cmath>
#include <cstdio>
#include <cstring>

#include "engine/attention.hpp"
#include "engine/rotary.hpp"
#include "sample_weights.hpp"

using namespace perceptd::engine;

namespace {

void print_digest(const char* name, int variant, const void* data, std::size_t size_bytes) {
    std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
    for (std::size_t i = 0; i < size_bytes; ++i) {
        hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3U;
    }
    std::printf("%s %d %016llx\n", name, variant, static_cast<unsigned long long>(hash));
}

std::vector<float> random_values(std::size_t count, std::uint_fast32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> values(count);
    for (float& x : values) {
        x = std::ldexp(static_cast<float>(random() % 65537) - 32768.0F, -13);
    }
    return values;
}

void digest_products(const KernelTable& kernels) {
    constexpr std::size_t kTokens = 13;
    constexpr std::size_t kRows = 21;
    for (const WeightKind kind : kAllKinds) {
        const std::size_t columns = 768;
        SampleWeights source(kind, kRows, columns, 77);
        const WeightView weights = source.pack_now();
        const std::vector<float> floats = random_values(kTokens * columns, 5);
        std::vector<ActivationGroup> codes(kTokens * columns / 32);
        kernels.quantize(floats.data(), nullptr, codes.size(), codes.data());
        std::vector<float> out(kTokens * kRows);
        kernels.linear(weights, {{codes.data(), columns / 32}, {floats.data(), columns}, kTokens}, 0,
                       weights.row_blocks(), out.data(), kRows);
        print_digest("quantize", static_cast<int>(kind), codes.data(), codes.size() * sizeof(ActivationGroup));
        print_digest("linear", static_cast<int>(kind), out.data(), out.size() * sizeof(float));
    }
}

void digest_rows(const KernelTable& kernels) {
    constexpr std::size_t kCount = 4096;
    const std::vector<float> x = random_values(kCount, 1);
    const std::vector<float> y = random_values(kCount, 2);
    std::vector<float> out(kCount);
    const auto print = [&](const char* name) { print_digest(name, 0, out.data(), kCount * sizeof(float)); };
    kernels.rms_norm(x.data(), y.data(), 1e-5F, kCount, out.data());
    print("rms_norm");
    kernels.layer_norm(x.data(), y.data(), x.data(), 1e-5F, kCount, out.data());
    print("layer_norm");
    kernels.silu_multiply(x.data(), y.data(), kCount, out.data());
    print("silu_multiply");
    kernels.gelu(x.data(), kCount, out.data());
    print("gelu");
    for (std::size_t i = 0; i < kCount; ++i) {
        out[i] = x[i] * 24.0F;
    }
    kernels.exponential(out.data(), kCount, out.data());
    print("exponential");
    out = x;
    kernels.softmax(out.data(), kCount);
    print("softmax");
    out[0] = kernels.dot(x.data(), y.data(), kCount);
    print("dot");
    for (const RotaryOrder order : {RotaryOrder::Norm, RotaryOrder::Neox}) {
        out = x;
        kernels.rotate(out.data(), y.data(), y.data() + 64, 128, order);
        print("rotate");
    }
}

void digest_attention(const KernelTable& kernels) {
    constexpr std::size_t kSlots = 100;
    constexpr std::size_t kDimension = 96;
    for (const KvFormat format : {KvFormat::F32, KvFormat::F16, KvFormat::Q8, KvFormat::Fp8E4m3}) {
        const KvShape shape{1, 1, kDimension, format};
        const std::vector<std::uint32_t> table{2, 0, 3, 1};
        std::vector<std::byte> pool(4 * shape.page_bytes());
        const KvView kv{shape, pool.data(), table};
        const std::vector<float> rows = random_values(2 * kSlots * kDimension, 9);
        for (std::size_t slot = 0; slot < kSlots; ++slot) {
            kernels.encode_kv(format, &rows[2 * slot * kDimension], kDimension, kv.key_row(0, 0, slot));
            kernels.encode_kv(format, &rows[(2 * slot + 1) * kDimension], kDimension, kv.value_row(0, 0, slot));
        }
        print_digest("cache", static_cast<int>(format), pool.data(), pool.size());
        const std::vector<float> queries = random_values(10 * 3 * kDimension, 3);
        std::vector<float> out(queries.size());
        AttentionTask task;
        task.queries = {queries.data(), 3 * kDimension};
        task.out = {out.data(), 3 * kDimension};
        task.tokens = 10;
        task.query_heads = 3;
        task.first_position = kSlots - 10;
        task.score_scale = 0.1F;
        task.kv = kv;
        kernels.attend({&task, 0, 0, 10});
        print_digest("attend", static_cast<int>(format), out.data(), out.size() * sizeof(float));
    }
}

}  // namespace

int main() {
    const KernelTable& kernels = kernels_of(chosen_instruction_set());
    std::fprintf(stderr, "instruction set: %s\n", std::string(name_of(kernels.set)).c_str());
    digest_products(kernels);
    digest_rows(kernels);
    digest_attention(kernels);
    return 0;
}

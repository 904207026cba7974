// Matrix kernels against the machine's limits: a stack of matrices larger than the last-level cache, multiplied with
// 1, 4, 5, 8 and 512 tokens. Yardsticks are taken in every round, right beside what they judge; medians of the rounds.
// Usage: bench_kernels [rounds [kind ...]]; kinds as in WeightKind: q4_0 q4_k q6_k q8_0 int4_g32 f16.
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/clock.hpp"
#include "engine/kernels.hpp"
#include "engine/operations.hpp"
#include "engine/pack.hpp"
#include "yardstick.hpp"

using namespace perceptd;
using namespace perceptd::engine;
using namespace perceptd::bench;

namespace {

constexpr std::size_t kColumns = 2048;
constexpr std::size_t kRows = 5632;
constexpr std::size_t kWideTokens = 512;
constexpr std::size_t kStackBytes = 192U << 20U;
constexpr std::size_t kReadBytes = 256U << 20U;

const std::map<std::string, WeightKind> kKinds = {{"q4_0", WeightKind::Q4_0},        {"q4_k", WeightKind::Q4_K},
                                                  {"q6_k", WeightKind::Q6_K},        {"q8_0", WeightKind::Q8_0},
                                                  {"int4_g32", WeightKind::Int4G32}, {"f16", WeightKind::F16}};

/// Equal matrices that differ in place, not in content: one is packed, the others are copies.
struct Stack {
    WeightView shape;
    std::size_t count;
    engine::HugeBuffer memory;

    explicit Stack(WeightKind kind)
        : shape{kind, kRows, kColumns}, count(kStackBytes / shape.bytes()), memory(count * shape.bytes()) {
        std::mt19937 random(1);
        std::vector<std::byte> source(kRows * source_row_bytes(kind, kColumns));
        for (std::byte& b : source) {
            // Small bytes keep every scale finite and every zero point legal.
            b = static_cast<std::byte>(random() & 0x0FU);
        }
        const PackFault fault = pack_row_blocks(shape, source, {memory.data(), shape.bytes()}, 0, shape.row_blocks());
        if (fault.reason != nullptr) {
            std::fprintf(stderr, "packing failed: %s\n", fault.reason);
            std::exit(1);
        }
        for (std::size_t i = 1; i < count; ++i) {
            std::memcpy(memory.data() + i * shape.bytes(), memory.data(), shape.bytes());
        }
    }
    [[nodiscard]] WeightView matrix(std::size_t i) const {
        WeightView view = shape;
        view.data = memory.data() + i * shape.bytes();
        return view;
    }
};

struct Activations {
    std::vector<float> floats = std::vector<float>(kWideTokens * kColumns);
    std::vector<ActivationGroup> codes = std::vector<ActivationGroup>(kWideTokens * kColumns / kGroupSize);
    std::vector<float> out = std::vector<float>(kWideTokens * kRows);

    explicit Activations(const KernelTable& kernels) {
        std::mt19937 random(2);
        for (float& x : floats) {
            x = static_cast<float>(random() % 2001) * 0.001F - 1.0F;
        }
        kernels.quantize(floats.data(), nullptr, codes.size(), codes.data());
    }
    [[nodiscard]] LinearInput tokens(std::size_t count) const {
        return {{codes.data(), kColumns / kGroupSize}, {floats.data(), kColumns}, count};
    }
};

/// Seconds for `count` matrices of the stack, a barrier after each.
double pass_seconds(WorkerTeam& team, const KernelTable& kernels, const Stack& stack, std::size_t count,
                    Activations& activations, std::size_t tokens) {
    auto program = [&](Worker& worker) noexcept {
        for (std::size_t i = 0; i < count; ++i) {
            linear(worker, kernels, stack.matrix(i), activations.tokens(tokens), {}, {activations.out.data(), kRows});
            worker.barrier();
        }
    };
    const std::int64_t begin_ns = monotonic_ns();
    team.run(program);
    return static_cast<double>(monotonic_ns() - begin_ns) * 1e-9;
}

nlohmann::json measure(WorkerTeam& team, const KernelTable& kernels, const std::string& name, int rounds,
                       const engine::HugeBuffer& to_read, std::vector<double>& reads, std::vector<double>& peaks) {
    const Stack stack(kKinds.at(name));
    Activations activations(kernels);
    const double bytes = static_cast<double>(stack.count * stack.shape.bytes());
    std::map<std::size_t, std::vector<double>> against;
    std::map<std::size_t, std::vector<double>> plain;
    for (int round = 0; round < rounds; ++round) {
        for (const std::size_t tokens : {1U, 2U, 4U, 5U, 8U}) {
            const double before = read_gbps(team, to_read);
            const double seconds = pass_seconds(team, kernels, stack, stack.count, activations, tokens);
            const double read = (before + read_gbps(team, to_read)) / 2;
            reads.push_back(read);
            plain[tokens].push_back(bytes / seconds * 1e-9);
            against[tokens].push_back(seconds / (bytes * 1e-9 / read));
        }
        const double before = int8_peak_gops(team);
        const double seconds = pass_seconds(team, kernels, stack, 4, activations, kWideTokens);
        const double peak = (before + int8_peak_gops(team)) / 2;
        const double gops = 2.0 * 4 * kWideTokens * kRows * kColumns / seconds * 1e-9;
        peaks.push_back(peak);
        plain[kWideTokens].push_back(gops);
        against[kWideTokens].push_back(peak > 0.0 ? gops / peak : 0.0);
    }
    nlohmann::json result = {{"kind", name}, {"bytes", stack.count * stack.shape.bytes()}};
    for (const std::size_t tokens : {1U, 2U, 4U, 5U, 8U}) {
        result["m" + std::to_string(tokens) + "_gbps"] = median(plain[tokens]);
        result["m" + std::to_string(tokens) + "_weight_reads"] = median(against[tokens]);
    }
    result["m1_of_read"] = 1.0 / median(against[1]);
    result["m512_gops"] = median(plain[kWideTokens]);
    result["m512_of_peak"] = median(against[kWideTokens]);
    std::fprintf(stderr, "%s: m1 %.2f of read (%.1f GB/s), m4 %.2f m5 %.2f m8 %.2f weight reads, m512 %.2f of peak\n",
                 name.c_str(), 1.0 / median(against[1]), median(plain[1]), median(against[4]), median(against[5]),
                 median(against[8]), median(against[kWideTokens]));
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
    std::vector<std::string> names(argv + (argc > 2 ? 2 : argc), argv + argc);
    if (names.empty()) {
        names = {"q4_0", "q8_0", "q4_k", "q6_k", "int4_g32"};
    }
    const KernelTable& kernels = kernels_of(chosen_instruction_set());
    const double pingpong_us = spin_pingpong_us(0, 1);
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    ::sched_setaffinity(0, sizeof(first), &first);
    WorkerTeam team({.worker_count = 2, .cpu_indices = {0, 1}, .spin_us = 1000});
    const engine::HugeBuffer to_read(kReadBytes);
    std::memset(to_read.data(), 1, to_read.size_bytes());
    std::vector<double> reads;
    std::vector<double> peaks;
    nlohmann::json result = {{"instruction_set", name_of(kernels.set)}, {"rounds", rounds}};
    result["kinds"] = nlohmann::json::array();
    for (const std::string& name : names) {
        if (kKinds.find(name) == kKinds.end()) {
            std::fprintf(stderr, "unknown kind %s\n", name.c_str());
            return 64;
        }
        result["kinds"].push_back(measure(team, kernels, name, rounds, to_read, reads, peaks));
    }
    result["read_gbps"] = median(reads);
    result["int8_peak_gops"] = median(peaks);
    result["spin_pingpong_us"] = {pingpong_us, spin_pingpong_us(0, 1)};
    std::printf("%s\n", result.dump().c_str());
    return 0;
}

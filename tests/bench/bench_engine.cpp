// Decoding, verification and prefill against what this machine's memory and integer units can do in the same minute.
// Usage: bench_engine [--workers N] [--rounds N] [--cache DIR [--mapped]] FILE.gguf...
// Progress on stderr; the last line of stdout is one JSON object (keys: tests/bench/README.md).
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "engine/decoder_runtime.hpp"
#include "model/digest.hpp"
#include "yardstick.hpp"

namespace {

using namespace perceptd;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kPrefillTokens = 512;
constexpr std::size_t kYardBytes = std::size_t{1} << 30;  // far beyond the last-level cache
constexpr double kSiblingsUs = 0.3;
constexpr std::uint32_t kContextTokens = 64;  // in the cache before a decoding pass

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The most memory that this process has had, what it shares included.
std::uint64_t peak_rss_bytes() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

std::string digest_of(const std::string& path) {
    const model::ModelFile file = model::ModelFile::open(path, model::Backing::Mapped);
    return model::to_hex(model::sha256_of(file.bytes()));
}

/// One model with a cache for one sequence.
class Bench {
public:
    Bench(const std::string& path, engine::WorkerTeam& team, const std::string& cache_folder,
          engine::WeightResidence residence)
        : path_(path) {
        // A package's manifest holds the digest, so that finding the cache file costs no pass over the model.
        const std::string digest = cache_folder.empty() ? std::string() : digest_of(path);
        const auto start = Clock::now();
        runtime_ = std::make_unique<engine::DecoderRuntime>(
            engine::DecoderRuntime::load(path, team,
                                         {.limits = {.tokens_max = kPrefillTokens, .logit_rows_max = 8},
                                          .positions_max = kPrefillTokens + kContextTokens,
                                          .cache_folder = cache_folder,
                                          .residence = residence,
                                          .digest = digest}));
        const engine::KvShape& shape = runtime_->kv_shape();
        pages_.resize((kPrefillTokens + kContextTokens) / engine::kPagePositions);
        std::iota(pages_.begin(), pages_.end(), 0U);
        pool_ = engine::HugeBuffer(shape.page_bytes() * pages_.size());
        pool_.prefault();
        pass(1, 0, 1);
        load_s_ = seconds_since(start);
        peak_rss_bytes_ = peak_rss_bytes();
        for (std::uint32_t at = 0; at < kContextTokens; ++at) {
            pass(1, at, 1);
        }
    }

    /// Seconds of one pass of `tokens` behind `first` positions; logits of `rows` of them.
    double pass(std::uint32_t tokens, std::uint32_t first, std::uint32_t rows) {
        std::vector<std::uint32_t> ids(tokens);
        for (std::uint32_t i = 0; i < tokens; ++i) {
            ids[i] = (next_id_ += 7919) % runtime_->config().vocabulary_size;
        }
        std::vector<std::uint32_t> wanted(rows);
        std::iota(wanted.begin(), wanted.end(), tokens - rows);
        const engine::Pass pass{.token_ids = ids,
                                .first_position = first,
                                .logit_rows = wanted,
                                .kv = {runtime_->kv_shape(), pool_.data(), pages_}};
        const auto start = Clock::now();
        if (runtime_->executor().run(pass) != Status::Ok) {
            throw std::runtime_error(path_ + ": a pass failed");
        }
        return seconds_since(start);
    }

    [[nodiscard]] engine::DecoderRuntime& runtime() { return *runtime_; }
    [[nodiscard]] double load_s() const { return load_s_; }
    [[nodiscard]] std::uint64_t loaded_rss_bytes() const { return peak_rss_bytes_; }
    [[nodiscard]] std::size_t kv_bytes() const { return pool_.size_bytes(); }

private:
    std::string path_;
    std::unique_ptr<engine::DecoderRuntime> runtime_;
    std::vector<std::uint32_t> pages_;
    engine::HugeBuffer pool_;
    std::uint32_t next_id_ = 1;
    double load_s_ = 0;
    std::uint64_t peak_rss_bytes_ = 0;
};

/// Multiply-accumulates of the matrices that one token passes.
double macs_per_token(const graph::Graph& graph) {
    double macs = 0;
    for (const graph::Node& node : graph.nodes) {
        if (node.layer == graph::kNone) {
            continue;  // the logits are computed for one row of a prefill
        }
        for (const graph::WeightId id : node.weights) {
            macs +=
                graph.weights[id].rows > 1 ? static_cast<double>(graph.weights[id].rows) * graph.weights[id].cols : 0;
        }
    }
    return macs;
}

nlohmann::ordered_json measure(Bench& bench, const std::string& path, engine::WorkerTeam& team,
                               const engine::HugeBuffer& yard, int rounds) {
    const std::vector<std::uint32_t> widths{1, 2, 4, 5, 8};
    std::vector<std::vector<double>> pass_s(widths.size());
    std::vector<double> prefill_s;
    std::vector<double> read_gbps;
    std::vector<double> peak_gops;
    std::vector<double> pingpong_us;
    int siblings = 0;
    const double weight_bytes = static_cast<double>(bench.runtime().predict({}).weight_bytes);
    const int passes = weight_bytes > 2e8 ? 2 : 12;
    for (int round = 0; round < rounds; ++round) {
        const double before_us = bench::spin_pingpong_us(0, 1);
        read_gbps.push_back(bench::read_gbps(team, yard));
        peak_gops.push_back(bench::int8_peak_gops(team));
        for (std::size_t i = 0; i < widths.size(); ++i) {
            double total_s = 0;
            for (int pass = 0; pass < passes; ++pass) {
                total_s += bench.pass(widths[i], kContextTokens, widths[i]);
            }
            pass_s[i].push_back(total_s / passes);
        }
        prefill_s.push_back(bench.pass(kPrefillTokens, 0, 1));
        const double after_us = bench::spin_pingpong_us(0, 1);
        siblings += std::min(before_us, after_us) < kSiblingsUs ? 1 : 0;
        pingpong_us.push_back(std::min(before_us, after_us));
        std::fprintf(stderr, "%s: round %d of %d: read %.1f GB/s, decode %.1f tokens/s, prefill %.0f tokens/s\n",
                     path.c_str(), round + 1, rounds, read_gbps.back(), 1 / pass_s[0].back(),
                     kPrefillTokens / prefill_s.back());
    }
    // Ratios are taken inside a round, where both sides saw the same machine.
    const auto ratio = [&](auto&& of_round) {
        std::vector<double> values;
        for (int round = 0; round < rounds; ++round) {
            values.push_back(of_round(static_cast<std::size_t>(round)));
        }
        return bench::median(values);
    };
    const double prefill_ops = 2 * macs_per_token(bench.runtime().executor().graph()) * kPrefillTokens;
    nlohmann::ordered_json result;
    result["name"] = std::filesystem::path(path).stem().string();
    result["bytes"] = static_cast<std::uint64_t>(weight_bytes);
    result["load_s"] = bench.load_s();
    result["peak_rss_bytes"] = bench.loaded_rss_bytes();
    result["kv_bytes"] = bench.kv_bytes();
    result["weights_from"] = bench.runtime().origin() == engine::WeightOrigin::Cached ? "cache" : "file";
    for (std::size_t i = 0; i < widths.size(); ++i) {
        result["m" + std::to_string(widths[i]) + "_tok_s"] = widths[i] / bench::median(pass_s[i]);
    }
    result["m512_tok_s"] = kPrefillTokens / bench::median(prefill_s);
    result["m1_gbps"] = weight_bytes / bench::median(pass_s[0]) / 1e9;
    result["m512_gops"] = prefill_ops / bench::median(prefill_s) / 1e9;
    result["m1_of_read"] = ratio([&](std::size_t r) { return weight_bytes / pass_s[0][r] / 1e9 / read_gbps[r]; });
    for (std::size_t i = 2; i < widths.size(); ++i) {
        result["m" + std::to_string(widths[i]) + "_weight_reads"] =
            ratio([&](std::size_t r) { return pass_s[i][r] * read_gbps[r] * 1e9 / weight_bytes; });
        result["m" + std::to_string(widths[i]) + "_of_m1"] =
            ratio([&](std::size_t r) { return pass_s[i][r] / pass_s[0][r]; });
    }
    result["m512_of_peak"] = ratio([&](std::size_t r) { return prefill_ops / prefill_s[r] / 1e9 / peak_gops[r]; });
    result["read_gbps"] = bench::median(read_gbps);
    result["int8_peak_gops"] = bench::median(peak_gops);
    result["spin_pingpong_us"] = bench::median(pingpong_us);
    result["sibling_rounds"] = siblings;
    return result;
}

int run(int argc, char** argv) {
    std::size_t workers = 2;
    int rounds = 7;
    std::string cache_folder;
    engine::WeightResidence residence = engine::WeightResidence::HugePages;
    std::vector<std::string> files;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--workers" && i + 1 < argc) {
            workers = static_cast<std::size_t>(std::atoi(argv[++i]));
        } else if (argument == "--rounds" && i + 1 < argc) {
            rounds = std::max(1, std::atoi(argv[++i]));
        } else if (argument == "--cache" && i + 1 < argc) {
            cache_folder = argv[++i];
        } else if (argument == "--mapped") {
            residence = engine::WeightResidence::Mapped;
        } else {
            files.push_back(argument);
        }
    }
    if (files.empty()) {
        std::cerr << "usage: bench_engine [--workers N] [--rounds N] [--cache DIR [--mapped]] FILE.gguf...\n"
                     "make files with: perceptd-model make --shape 15m --type q4_0 -o 15m-q4_0.gguf\n";
        return 2;
    }
    nlohmann::ordered_json report;
    report["workers"] = workers;
    report["models"] = nlohmann::ordered_json::array();
    std::vector<double> read_gbps;
    std::vector<double> peak_gops;
    for (const std::string& file : files) {
        engine::WorkerTeam team({.worker_count = workers, .cpu_indices = {0, 1}});
        Bench bench(file, team, cache_folder, residence);
        // Only now, so that it is no part of the peak of the first model.
        engine::HugeBuffer yard(kYardBytes);
        yard.prefault();
        report["models"].push_back(measure(bench, file, team, yard, rounds));
        read_gbps.push_back(report["models"].back()["read_gbps"]);
        peak_gops.push_back(report["models"].back()["int8_peak_gops"]);
    }
    report["read_gbps"] = bench::median(read_gbps);
    report["int8_peak_gops"] = bench::median(peak_gops);
    std::cout << report.dump() << '\n';
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "bench_engine: " << error.what() << '\n';
        return 1;
    }
}

// What it costs to keep an answer: the journal at a steady rate of tokens (bytes, processor time, synchronizations),
// and one append beside a bare write of the same bytes to the same file system. Usage: bench_store [seconds [folder]]
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "percentile.hpp"
#include "store/store.hpp"

namespace {

using namespace perceptd;

std::int64_t processor_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<std::int64_t>(now.tv_sec) * kNsPerSecond + now.tv_nsec;
}

store::TurnStart start_of(std::uint64_t id) {
    return {.id = id,
            .uid = 1000,
            .thread = id,
            .model = "dialogue-23m",
            .model_digest = std::string(64, 'a'),
            .prompt = std::vector<std::uint32_t>(200, 3000),
            .request = std::string(60, 'r'),
            .started_at_ms = store::wall_ms()};
}

/// Bytes that a process has handed to write() so far, to files and to nothing else here.
std::int64_t folder_bytes_written() {
    std::FILE* const file = std::fopen("/proc/self/io", "r");
    char line[128];
    long long bytes = 0;
    while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr) {
        std::sscanf(line, "wchar: %lld", &bytes);
    }
    if (file != nullptr) {
        std::fclose(file);
    }
    return bytes;
}

/// One answer of `seconds` at `tokens_per_s`, a token at a time: the dearest way.
nlohmann::json pace(store::Store& store, std::uint64_t id, double tokens_per_s, double seconds) {
    std::cerr << "bench_store: " << tokens_per_s << " tokens/s for " << seconds << " s\n";
    const std::int64_t started_at_ns = monotonic_ns();
    const std::int64_t processor_before_ns = processor_ns();
    const std::uint64_t syncs_before = store.sync_count();
    const std::int64_t bytes_before = folder_bytes_written();
    const auto journal = store.begin(start_of(id), 0);
    const auto tokens = static_cast<std::uint32_t>(tokens_per_s * seconds);
    for (std::uint32_t token = 0; token < tokens; ++token) {
        const auto due_ns = started_at_ns + static_cast<std::int64_t>(token / tokens_per_s * 1e9);
        const timespec due{due_ns / kNsPerSecond, due_ns % kNsPerSecond};
        ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
        const std::uint32_t ids[] = {20000 + token};
        journal->append(ids);
        store.written(journal);
    }
    const std::uint64_t journal_bytes = journal->written_bytes();
    journal->finish("tokens_max");
    store.close(journal);
    store.run([](store::StoreTables&) {});
    const double took_s = static_cast<double>(monotonic_ns() - started_at_ns) / 1e9;
    return {{"tokens_per_s", tokens_per_s},
            {"journal_bytes_per_s", static_cast<double>(journal_bytes) / took_s},
            {"written_bytes_per_s", static_cast<double>(folder_bytes_written() - bytes_before) / took_s},
            {"core_fraction", static_cast<double>(processor_ns() - processor_before_ns) / 1e9 / took_s},
            {"syncs_per_s", static_cast<double>(store.sync_count() - syncs_before) / took_s}};
}

}  // namespace

int main(int argc, char** argv) try {
    const double seconds = argc > 1 ? std::strtod(argv[1], nullptr) : 5;
    std::string folder = (argc > 2 ? std::string(argv[2]) : std::string("/tmp")) + "/perceptd-bench-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) {
        throw_errno("mkdtemp", folder);
    }
    nlohmann::json result;
    {
        store::Store store({.folder = folder + "/store", .calls = {}});
        result["paced"] = {pace(store, 1, 20, seconds), pace(store, 2, 100, seconds)};
        bench::BatchedPercentiles append;
        bench::BatchedPercentiles bare;
        const int fd = ::open((folder + "/bare").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        const auto journal = store.begin(start_of(3), 0);
        const std::string record(47, 'x');
        for (int batch = 0; batch < 20; ++batch) {
            std::vector<std::int64_t> append_ns;
            std::vector<std::int64_t> bare_ns;
            for (int i = 0; i < 500; ++i) {
                const std::uint32_t ids[] = {20000};
                const std::int64_t a = monotonic_ns();
                journal->append(ids);
                const std::int64_t b = monotonic_ns();
                if (::write(fd, record.data(), record.size()) < 0) {
                    throw_errno("write");
                }
                append_ns.push_back(b - a);
                bare_ns.push_back(monotonic_ns() - b);
            }
            append.add_batch(append_ns);
            bare.add_batch(bare_ns);
        }
        ::close(fd);
        result["append_us"] = append.json();
        result["bare_write_us"] = bare.json();
        result["append_of_bare"] = append.p50_us() / bare.p50_us();
        journal->finish("tokens_max");
        store.close(journal);
    }
    std::filesystem::remove_all(folder);
    std::cout << result.dump() << '\n';
    return 0;
} catch (const std::exception& error) {
    std::cerr << "bench_store: " << error.what() << '\n';
    return 1;
}

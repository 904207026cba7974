// A folder for one test's store. Owns it and all in it. Never outside /tmp and /dev/shm.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "store/turn.hpp"

namespace perceptd::store::test {

class StoreFolder {
public:
    explicit StoreFolder(const std::string& parent = "/tmp") : path_(parent + "/perceptd-store-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr) {
            throw_errno("mkdtemp", path_);
        }
    }
    ~StoreFolder() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    StoreFolder(const StoreFolder&) = delete;
    StoreFolder& operator=(const StoreFolder&) = delete;

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
    [[nodiscard]] std::string database() const { return file("perceptd.db"); }

private:
    std::string path_;
};

inline std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline TurnStart some_start(std::uint64_t id, std::uint32_t uid = 1000, std::uint64_t thread = 0) {
    return {.id = id,
            .uid = uid,
            .thread = thread,
            .model = "tiny",
            .model_digest = "ab12",
            .prompt = {1, 2, 300},
            .rng_key = 0xfedcba9876543210,
            .sampler_digest = 77,
            .request = std::string("a\0b", 3),
            .started_at_ms = 1'700'000'000'000};
}

inline bool is_equal(const TurnStart& a, const TurnStart& b) {
    return a.id == b.id && a.uid == b.uid && a.thread == b.thread && a.model == b.model &&
           a.model_digest == b.model_digest && a.prompt == b.prompt && a.rng_key == b.rng_key &&
           a.sampler_digest == b.sampler_digest && a.request == b.request && a.started_at_ms == b.started_at_ms;
}

}  // namespace perceptd::store::test

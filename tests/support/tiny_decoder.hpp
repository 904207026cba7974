// A random decoder small enough to generate thousands of texts in seconds, loaded like any other model.
// Owns the file while it loads, then everything that runs it. Never trained: its texts are noise, but always the same.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "engine/decoder_runtime.hpp"
#include "generate/kv_cache.hpp"
#include "random_decoder.hpp"

namespace perceptd::support {

inline RandomDecoderOptions tiny_options(model::Encoding encoding = model::Encoding::Q8_0, std::uint64_t seed = 1) {
    return {.encoding = encoding,
            .width = 64,
            .feed_forward_width = 64,
            .layer_count = 1,
            .head_count = 2,
            .kv_head_count = 1,
            .vocabulary_size = 320,
            .seed = seed};
}

/// With a cache of `page_count` pages. Two of the same seed and different encodings draft for each other.
class TinyDecoder {
public:
    static constexpr std::size_t kBatchTokens = 32;

    explicit TinyDecoder(const RandomDecoderOptions& options = tiny_options(), std::size_t page_count = 64)
        : team_({.worker_count = 1, .cpu_indices = {}}), runtime_(load(options, team_)) {
        model::Digest digest{};
        digest[0] = static_cast<std::uint8_t>(options.seed);
        cache_ = std::make_unique<generate::KvCache>(runtime_.kv_shape(), page_count, digest);
    }

    [[nodiscard]] engine::DecoderRuntime& runtime() { return runtime_; }
    [[nodiscard]] generate::KvCache& cache() { return *cache_; }

private:
    static engine::DecoderRuntime load(const RandomDecoderOptions& options, engine::WorkerTeam& team) {
        std::string path = "/tmp/perceptd-tiny-XXXXXX";
        const int fd = ::mkstemp(path.data());
        const auto bytes = random_decoder(options);
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        ::close(fd);
        try {
            auto runtime = engine::DecoderRuntime::load(
                path, team, {.limits = {.tokens_max = kBatchTokens, .logit_rows_max = 17}, .positions_max = 512});
            ::unlink(path.c_str());
            return runtime;
        } catch (...) {
            ::unlink(path.c_str());
            throw;
        }
    }

    engine::WorkerTeam team_;
    engine::DecoderRuntime runtime_;
    std::unique_ptr<generate::KvCache> cache_;
};

}  // namespace perceptd::support

// A decoder ready to run: its shape, its weights in the kernels' layout, its graph and its executor.
// Owns all of these; borrows the worker team. Never keeps the model file open once the weights are packed.
#pragma once

#include <memory>
#include <string>

#include "engine/executor.hpp"
#include "engine/packed_decoder.hpp"
#include "graph/fuse.hpp"
#include "model/decoder_config.hpp"
#include "model/model_file.hpp"

namespace perceptd::engine {

struct DecoderOptions {
    graph::PassLimits limits{.tokens_max = 512, .logit_rows_max = 17};
    std::uint32_t positions_max = 2048;  ///< at most the model's context
    KvFormat kv_format = KvFormat::F16;
    graph::FusionOptions fusion;
    /// Folder for packed weights, made by whoever configures it; empty: pack at every load.
    std::string cache_folder;
    WeightResidence residence = WeightResidence::HugePages;
    model::Backing backing = model::Backing::Mapped;
    /// The file's SHA-256 if the caller knows it (a package's manifest); empty: it is computed when a cache is used.
    std::string digest;
};

/// How the weights came into memory.
enum class WeightOrigin : std::uint8_t {
    Packed,         ///< from the model file, and not kept
    PackedAndKept,  ///< from the model file, and written to the cache folder
    Cached,         ///< from the cache folder
};

/// Move-only. Thread-bound like its executor.
class DecoderRuntime {
public:
    /// Reads a GGUF file. Throws Error that says what is wrong with the file, std::system_error from the system. A
    /// cache that cannot be written costs the next start some time and is told by origin() and cache_fault().
    [[nodiscard]] static DecoderRuntime load(const std::string& path, WorkerTeam& team, const DecoderOptions& options);

    [[nodiscard]] Executor& executor() noexcept { return *executor_; }
    [[nodiscard]] const model::DecoderConfig& config() const noexcept { return config_; }
    [[nodiscard]] const KvShape& kv_shape() const noexcept { return kv_shape_; }
    [[nodiscard]] std::size_t weight_bytes() const noexcept { return weights_->size_bytes(); }
    [[nodiscard]] WeightOrigin origin() const noexcept { return origin_; }
    /// Why packed weights were not kept; empty when they were, or when no folder was given.
    [[nodiscard]] const std::string& cache_fault() const noexcept { return cache_fault_; }
    /// What the next pass of this shape will move.
    [[nodiscard]] graph::Traffic predict(const graph::PassShape& pass) const {
        return graph::predict(executor_->graph(), pass, kv_shape_.position_bytes() / kv_shape_.layers);
    }

private:
    DecoderRuntime() = default;
    void take_weights(const model::Decoder& decoder, const model::ModelFile& file, WorkerTeam& team,
                      const DecoderOptions& options);

    model::DecoderConfig config_;
    KvShape kv_shape_;
    std::unique_ptr<PackedDecoder> weights_;
    std::unique_ptr<Executor> executor_;
    WeightOrigin origin_ = WeightOrigin::Packed;
    std::string cache_fault_;
};

}  // namespace perceptd::engine

#include "engine/decoder_runtime.hpp"

#include <algorithm>
#include <exception>
#include <optional>

#include "base/error.hpp"
#include "model/digest.hpp"

namespace perceptd::engine {

void DecoderRuntime::take_weights(const model::Decoder& decoder, const model::ModelFile& file, WorkerTeam& team,
                                  const DecoderOptions& options) {
    std::string path;
    std::string digest = options.digest;
    if (!options.cache_folder.empty()) {
        if (digest.empty()) {
            digest = model::to_hex(model::sha256_of(file.bytes()));
        }
        path = options.cache_folder + "/" + weight_cache_name(digest);
        try {
            if (auto cached = PackedDecoder::read(decoder, digest, path, options.residence, team)) {
                weights_ = std::make_unique<PackedDecoder>(std::move(*cached));
                origin_ = WeightOrigin::Cached;
                return;
            }
        } catch (const std::exception& error) {
            cache_fault_ = error.what();
        }
    }
    weights_ = std::make_unique<PackedDecoder>(PackedDecoder::pack(decoder, team, &file));
    if (!path.empty()) {
        try {
            weights_->write(digest, path);
            origin_ = WeightOrigin::PackedAndKept;
        } catch (const std::exception& error) {
            cache_fault_ = error.what();
        }
    }
}

DecoderRuntime DecoderRuntime::load(const std::string& path, WorkerTeam& team, const DecoderOptions& options) {
    const model::ModelFile file = model::ModelFile::open(path, options.backing);
    const model::Gguf gguf = model::Gguf::parse(file.bytes(), file.label());
    const model::Decoder decoder = model::read_decoder(gguf);
    DecoderRuntime runtime;
    runtime.config_ = decoder.config;
    runtime.take_weights(decoder, file, team, options);
    if (!file.is_unchanged()) {
        throw Error(ErrorCode::Busy, path + ": the file changed while it was read; try again");
    }
    runtime.kv_shape_ = {decoder.config.layer_count, decoder.config.kv_head_count, decoder.config.head_dim,
                         options.kv_format};
    const PackedDecoder& weights = *runtime.weights_;
    const graph::Graph graph = graph::fuse(
        graph::build_decoder(decoder_shape_of(decoder.config), [&](std::string_view name, std::uint32_t,
                                                                   std::uint32_t) { return weights.form_of(name); }),
        options.fusion);
    const std::uint32_t positions_max = std::min(options.positions_max, decoder.config.context_tokens);
    graph::PassLimits limits = options.limits;
    limits.positions_max = positions_max;  // room for scores is planned only where a node writes them
    runtime.executor_ = std::make_unique<Executor>(
        graph, decoder.config, weights, team,
        ExecutorOptions{.limits = limits, .kv = runtime.kv_shape_, .positions_max = positions_max});
    return runtime;
}

}  // namespace perceptd::engine

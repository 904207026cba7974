// A decoder ready to run: the verified file, its shape, weights and tokenizer; and its draft model if the package
// brings one. Owns the files; everything else points into them. Never half loaded.
#pragma once

#include <optional>
#include <string>

#include "model/decoder_config.hpp"
#include "model/model_file.hpp"
#include "model/package.hpp"
#include "model/tokenizer.hpp"

namespace perceptd::model {

/// One GGUF file, read and checked. Move-only; safe to read from any thread.
struct DecoderFile {
    ModelFile file;
    Gguf gguf;
    Decoder decoder;
    Tokenizer tokenizer;

    /// Throws what the readers throw, and Error(InvalidArgument) when the vocabulary does not fit the embedding table.
    [[nodiscard]] static DecoderFile read(ModelFile file);
};

struct LoadedModel {
    Manifest manifest;
    DecoderFile main;
    std::optional<DecoderFile> draft;

    /// Reads and hashes the files of `package` for `device`. Blocks for as long as that takes. Throws as above, and
    /// Error(Unsupported) when there is no variant for `device`, the vocabulary is not the one that the manifest names,
    /// or the draft's differs.
    [[nodiscard]] static LoadedModel load(const Package& package, const std::string& device, Backing backing);
};

}  // namespace perceptd::model

// The readers in their order, and the gate between a model and its draft.
#include "model/loaded_model.hpp"

#include "base/error.hpp"

namespace perceptd::model {

DecoderFile DecoderFile::read(ModelFile file) {
    Gguf gguf = Gguf::parse(file.bytes(), file.label());
    Decoder decoder = read_decoder(gguf);
    Tokenizer tokenizer(Vocabulary::from(gguf));
    const std::size_t token_count = tokenizer.vocabulary().size();
    if (token_count != decoder.config.vocabulary_size) {
        throw Error(ErrorCode::InvalidArgument, file.label() + ": " + std::to_string(token_count) +
                                                    " tokens, but an embedding table of " +
                                                    std::to_string(decoder.config.vocabulary_size) + " rows");
    }
    return {std::move(file), std::move(gguf), std::move(decoder), std::move(tokenizer)};
}

LoadedModel LoadedModel::load(const Package& package, const std::string& device, Backing backing) {
    const Manifest& manifest = package.manifest();
    const ManifestVariant* const variant = manifest.find_variant(device);
    if (variant == nullptr) {
        throw Error(ErrorCode::Unsupported, package.folder() + ": no variant for device " + device);
    }
    LoadedModel loaded{manifest, DecoderFile::read(package.open_file(variant->file, backing)), std::nullopt};
    const Vocabulary& vocabulary = loaded.main.tokenizer.vocabulary();
    if (manifest.tokenizer_sha256 && vocabulary.digest() != *manifest.tokenizer_sha256) {
        throw Error(ErrorCode::Unsupported, package.folder() + ": the tokenizer's digest is " +
                                                to_hex(vocabulary.digest()) + "; the manifest says " +
                                                to_hex(*manifest.tokenizer_sha256));
    }
    if (!manifest.draft_file.empty()) {
        loaded.draft.emplace(DecoderFile::read(package.open_file(manifest.draft_file, backing)));
        if (const auto difference = first_difference(vocabulary, loaded.draft->tokenizer.vocabulary())) {
            throw Error(ErrorCode::Unsupported,
                        package.folder() + ": the draft has another vocabulary: " + difference->text);
        }
    }
    return loaded;
}

}  // namespace perceptd::model

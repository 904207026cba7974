// Collects into JSON; the text is a plain rendering of the same.
#include "inspection.hpp"

#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/loaded_model.hpp"
#include "model/utf8.hpp"

namespace perceptd::model_tool {
namespace {

using Json = nlohmann::ordered_json;

/// Runs `part`; a failure becomes result[name + "_error"].
template <typename Part>
bool attempt(Json& result, const std::string& name, Part part) {
    try {
        part();
        return true;
    } catch (const std::exception& error) {
        result[name + "_error"] = error.what();
        return false;
    }
}

Json value_json(const model::GgufValue& value) {
    if (const auto text = value.as_text()) {
        return model::printable(*text, 256);
    }
    if (const auto flag = value.as_bool()) {
        return *flag;
    }
    if (value.type == model::GgufType::Array) {
        return "list of " + std::to_string(value.count);
    }
    if (const auto number = value.as_unsigned()) {
        return *number;
    }
    return value.as_number().value_or(0);
}

void describe_decoder(Json& result, const model::Gguf& gguf) {
    const model::Decoder decoder = model::read_decoder(gguf);
    const model::DecoderConfig& config = decoder.config;
    result["decoder"] = {{"width", config.width},
                         {"layers", config.layer_count},
                         {"heads", config.head_count},
                         {"kv_heads", config.kv_head_count},
                         {"head_dim", config.head_dim},
                         {"feed_forward_width", config.feed_forward_width},
                         {"vocabulary_size", config.vocabulary_size},
                         {"context_tokens", config.context_tokens},
                         {"tied_embeddings", config.has_tied_embeddings},
                         {"rope_theta", config.rope.theta},
                         {"bytes_per_pass", decoder.bytes_per_pass()}};
}

void describe_tensors(Json& result, const model::Gguf& gguf) {
    std::map<std::string, std::uint64_t> bytes;
    std::uint64_t weights = 0;
    for (const model::TensorInfo& tensor : gguf.tensors()) {
        const model::WeightMatrix matrix = model::matrix_of(gguf, tensor);
        bytes[std::string(model::name_of(matrix.encoding))] += tensor.bytes.size();
        weights += tensor.name.ends_with(model::kRowScaleSuffix) ? 0 : matrix.columns * matrix.rows;
    }
    result["tensors"] = gguf.tensors().size();
    result["weights"] = weights;
    result["bytes_by_encoding"] = bytes;
}

void describe_vocabulary(Json& result, const model::Gguf& gguf) {
    const model::Vocabulary vocabulary = model::Vocabulary::from(gguf);
    result["tokenizer"] = {{"kind", vocabulary.kind() == model::VocabularyKind::SentencePiece ? "llama" : "gpt2"},
                           {"tokens", vocabulary.size()},
                           {"sha256", model::to_hex(vocabulary.digest())}};
}

bool describe_file(Json& result, const std::string& path) {
    const model::ModelFile file = model::ModelFile::open(path, model::Backing::Mapped);
    result["file"] = path;
    result["size_bytes"] = file.bytes().size();
    return attempt(result, "file", [&] {
        const model::Gguf gguf = model::Gguf::parse(file.bytes(), path);
        result["gguf_version"] = gguf.version();
        for (const model::GgufEntry& entry : gguf.metadata()) {
            if (!entry.key.starts_with(model::kQuantizationKey)) {
                result["metadata"][model::printable(entry.key)] = value_json(entry.value);
            }
        }
        bool is_good = attempt(result, "tensors", [&] { describe_tensors(result, gguf); });
        is_good = attempt(result, "decoder", [&] { describe_decoder(result, gguf); }) && is_good;
        if (!(attempt(result, "tokenizer", [&] { describe_vocabulary(result, gguf); }) && is_good)) {
            throw Error(ErrorCode::Unsupported, path + ": perceptd cannot use this file; the other errors say why");
        }
    });
}

bool describe_folder(Json& result, const std::string& path) {
    result["folder"] = path;
    return attempt(result, "package", [&] {
        const model::Package package = model::Package::open(path);
        result["manifest"] = Json::parse(model::manifest_text(package.manifest()));
        const model::LoadedModel loaded = model::LoadedModel::load(package, "cpu", model::Backing::Mapped);
        describe_decoder(result, loaded.main.gguf);
        describe_tensors(result, loaded.main.gguf);
        describe_vocabulary(result, loaded.main.gguf);
    });
}

void render(std::string& text, const Json& value, const std::string& indent) {
    for (const auto& [key, inner] : value.items()) {
        text += indent + key;
        if (inner.is_structured()) {
            text += "\n";
            render(text, inner, indent + "  ");
        } else {
            text += " " + (inner.is_string() ? inner.get<std::string>() : inner.dump()) + "\n";
        }
    }
}

}  // namespace

Inspection inspect(const std::string& path, bool as_json) {
    Json result;
    Inspection inspection;
    inspection.is_usable =
        std::filesystem::is_directory(path) ? describe_folder(result, path) : describe_file(result, path);
    result["usable"] = inspection.is_usable;
    if (as_json) {
        inspection.text = result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    } else {
        render(inspection.text, result, "");
    }
    return inspection;
}

}  // namespace perceptd::model_tool

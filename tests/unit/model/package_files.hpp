// Package folders in a temporary directory, with a decoder of a few kilobytes.
#pragma once

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "gguf_bytes.hpp"
#include "model/decoder_config.hpp"
#include "model/digest.hpp"
#include "model/vocabulary.hpp"

namespace perceptd::model::test {

class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "perceptd-model-XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

/// A file that only its owner may write, whatever the umask is.
inline void put_file(const std::filesystem::path& path, std::string_view text) {
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << text;
    ::chmod(path.c_str(), 0644);
}

inline void put_folder(const std::filesystem::path& path) {
    std::filesystem::create_directories(path);
    ::chmod(path.c_str(), 0755);
}

/// A llama decoder of width 32 with `extra` more tokens than the 260 that every text needs.
inline std::string small_decoder(std::uint32_t extra = 0) {
    GgufWriter writer;
    writer.add_text("general.architecture", "llama");
    DecoderConfig config;
    config.width = 32;
    config.layer_count = 1;
    config.head_count = 2;
    config.kv_head_count = 1;
    config.head_dim = 16;
    config.feed_forward_width = 32;
    config.vocabulary_size = 260 + extra;
    config.has_tied_embeddings = true;
    for (const auto& [key, value] : {std::pair{"context_length", 64U},
                                     {"embedding_length", 32U},
                                     {"block_count", 1U},
                                     {"feed_forward_length", 32U},
                                     {"attention.head_count", 2U},
                                     {"attention.head_count_kv", 1U}}) {
        writer.add_u32(std::string("llama.") + key, value);
    }
    writer.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> kinds{2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
        char text[8];
        std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
        tokens.emplace_back(text);
        kinds.push_back(6);
    }
    for (std::uint32_t i = 0; i <= extra; ++i) {
        tokens.push_back("w" + std::to_string(i));
        kinds.push_back(1);
    }
    writer.add_text("tokenizer.ggml.model", "llama");
    writer.add_texts("tokenizer.ggml.tokens", tokens);
    writer.add_floats("tokenizer.ggml.scores", std::vector<float>(tokens.size()));
    writer.add_integers("tokenizer.ggml.token_type", kinds);
    for (const TensorRequirement& tensor : required_tensors(config)) {
        const std::uint64_t dims[] = {tensor.columns, tensor.rows};
        writer.add_tensor(tensor.name, TensorType::F32, std::span(dims).first(tensor.is_f32 ? 1 : 2));
    }
    const auto bytes = whole_file(writer);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline nlohmann::json file_entry(const std::string& path, const std::string& content) {
    return {{"path", path},
            {"sha256", to_hex(sha256_of(std::as_bytes(std::span(content))))},
            {"size_bytes", content.size()}};
}

/// The manifest of a package whose only file is model.gguf with `content`.
inline nlohmann::json good_manifest(const std::string& name, const std::string& version, const std::string& content) {
    return {{"manifest", 1},
            {"name", name},
            {"version", version},
            {"licence", "Apache-2.0"},
            {"files", nlohmann::json::array({file_entry("model.gguf", content)})},
            {"inputs", {{{"name", "prompt"}, {"kind", "tokens"}, {"shape", {0}}}}},
            {"outputs", {{{"name", "text"}, {"kind", "tokens"}}}},
            {"variants", {{{"device", "cpu"}, {"file", "model.gguf"}}}}};
}

inline void put_package(const std::filesystem::path& folder, const nlohmann::json& manifest,
                        const std::string& content) {
    put_folder(folder);
    put_file(folder / "model.gguf", content);
    put_file(folder / "manifest.json", manifest.dump());
}

}  // namespace perceptd::model::test

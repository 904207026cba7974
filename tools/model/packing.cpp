// Old manifest, options, files on disk: in that order, each over the one before.
#include "packing.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "base/error.hpp"
#include "model/loaded_model.hpp"

namespace perceptd::model_tool {
namespace {

namespace filesystem = std::filesystem;

[[noreturn]] void refuse(const std::string& reason) {
    throw Error(ErrorCode::InvalidArgument, reason);
}

model::Manifest old_manifest(const filesystem::path& path) {
    std::ifstream file(path);
    if (!file) {
        return {};
    }
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return model::parse_manifest(text, path.string());
}

void take(std::string& into, const std::string& option) {
    if (!option.empty()) {
        into = option;
    }
}

std::vector<model::ManifestFile> hashed_files(const filesystem::path& folder) {
    std::vector<model::ManifestFile> files;
    for (const filesystem::directory_entry& entry : filesystem::recursive_directory_iterator(folder)) {
        const std::string path = entry.path().lexically_relative(folder).generic_string();
        if (entry.is_symlink()) {
            refuse(entry.path().string() + ": a symbolic link; packages hold files only");
        }
        if (!entry.is_regular_file() || path == "manifest.json") {
            continue;
        }
        if (!model::is_package_path(path)) {
            refuse(entry.path().string() + ": file names are of letters, digits, . _ - and start with no dot");
        }
        std::cerr << "hashing " << path << "\n";
        const model::ModelFile file = model::ModelFile::open(entry.path().string(), model::Backing::Mapped);
        files.push_back({path, model::sha256_of(file.bytes()), file.bytes().size()});
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return files;
}

std::string only_model(const std::vector<model::ManifestFile>& files) {
    std::string found;
    for (const model::ManifestFile& file : files) {
        if (file.path.ends_with(".gguf")) {
            if (!found.empty()) {
                refuse("more than one .gguf file; say which is the model with --model");
            }
            found = file.path;
        }
    }
    return found.empty() ? throw Error(ErrorCode::InvalidArgument, "no .gguf file in the folder") : found;
}

/// Reads the model as the daemon does, and all of its weights.
model::DecoderFile checked_decoder(const filesystem::path& path) {
    std::cerr << "checking " << path.filename().string() << "\n";
    model::DecoderFile decoder =
        model::DecoderFile::read(model::ModelFile::open(path.string(), model::Backing::Mapped));
    for (const model::TensorInfo& tensor : decoder.gguf.tensors()) {
        if (const auto bad = model::first_non_finite(model::matrix_of(decoder.gguf, tensor))) {
            refuse(path.string() + ": tensor " + std::string(tensor.name) + ": row " + std::to_string(bad->row) +
                   ", column " + std::to_string(bad->column) + " is not a finite number");
        }
    }
    return decoder;
}

void write_manifest(const model::Manifest& manifest, const filesystem::path& path) {
    const filesystem::path temporary = path.string() + ".part";
    std::ofstream file(temporary, std::ios::trunc);
    file << model::manifest_text(manifest);
    file.close();
    if (!file) {
        refuse(temporary.string() + ": cannot be written");
    }
    filesystem::permissions(temporary, filesystem::perms::group_write | filesystem::perms::others_write,
                            filesystem::perm_options::remove);
    filesystem::rename(temporary, path);
}

}  // namespace

model::Manifest pack(const PackOptions& options) {
    const filesystem::path folder(options.folder);
    const filesystem::path manifest_path = folder / "manifest.json";
    model::Manifest manifest = old_manifest(manifest_path);
    take(manifest.name, options.name);
    take(manifest.licence, options.licence);
    take(manifest.description, options.description);
    take(manifest.draft_file, options.draft_file);
    take(manifest.prompt_template, options.prompt_template);
    if (!options.version.empty()) {
        manifest.version.text = options.version;
    }
    if (manifest.name.empty() || manifest.version.text.empty() || manifest.licence.empty()) {
        refuse("a new package needs --name, --version and --licence");
    }
    manifest.files = hashed_files(folder);
    if (!options.model_file.empty() || manifest.variants.empty()) {
        manifest.variants = {{"cpu", options.model_file.empty() ? only_model(manifest.files) : options.model_file}};
    }
    if (manifest.inputs.empty()) {
        manifest.inputs = {{"prompt", "tokens", {0}}};
        manifest.outputs = {{"text", "tokens", {0}}};
    }
    const model::ManifestVariant* const variant = manifest.find_variant("cpu");
    if (variant == nullptr) {
        refuse("the manifest has no variant for cpu; name its file with --model");
    }
    const model::DecoderFile main = checked_decoder(folder / variant->file);
    manifest.tokenizer_sha256 = main.tokenizer.vocabulary().digest();
    if (!manifest.draft_file.empty()) {
        const model::DecoderFile draft = checked_decoder(folder / manifest.draft_file);
        if (const auto difference =
                model::first_difference(main.tokenizer.vocabulary(), draft.tokenizer.vocabulary())) {
            refuse("the draft has another vocabulary: " + difference->text);
        }
    }
    manifest = model::parse_manifest(model::manifest_text(manifest), manifest_path.string());
    write_manifest(manifest, manifest_path);
    return manifest;
}

}  // namespace perceptd::model_tool

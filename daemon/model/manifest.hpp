// What a model package says about itself: manifest.json, version 1. Owns the values. Never opens a file, never accepts
// a key that it does not know: a misspelt key must not be silently without effect.
//
//   manifest          1
//   name              a-z 0-9 . _ -, at most 64, starts with a letter or digit
//   version           semantic version 2.0: 1.2.3, 1.2.3-beta.1
//   licence           SPDX expression or a short text
//   description       optional
//   files             [{path, sha256, size_bytes}], every file but manifest.json itself
//   inputs, outputs   [{name, kind, shape?}]; kind: tokens patches mel motion tensor; shape: 0 is a free dimension
//   variants          [{device, file}]: which file runs on which device; "cpu" or a driver's name
//   prompt_template   optional; {prompt} stands for the user's text
//   draft             optional; {file} of this package, or {package} by name
//   tokenizer_sha256  optional; Vocabulary::digest() that the decoder files must have
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/digest.hpp"
#include "model/version.hpp"

namespace perceptd::model {

struct ManifestFile {
    std::string path;  ///< relative, without "." and "..", of a-z A-Z 0-9 . _ - and /
    Digest sha256{};
    std::uint64_t size_bytes = 0;
};

struct ManifestPort {
    std::string name;
    std::string kind;
    std::vector<std::uint64_t> shape;
};

struct ManifestVariant {
    std::string device;
    std::string file;
};

struct Manifest {
    std::string name;
    Version version;
    std::string licence;
    std::string description;
    std::vector<ManifestFile> files;
    std::vector<ManifestPort> inputs;
    std::vector<ManifestPort> outputs;
    std::vector<ManifestVariant> variants;
    std::string prompt_template;
    std::string draft_file;     ///< empty: none
    std::string draft_package;  ///< empty: none
    std::optional<Digest> tokenizer_sha256;

    [[nodiscard]] const ManifestFile* find_file(std::string_view path) const noexcept;
    [[nodiscard]] const ManifestVariant* find_variant(std::string_view device) const noexcept;
};

/// Whether `path` stays inside a package by its letters alone.
[[nodiscard]] bool is_package_path(std::string_view path) noexcept;

/// Parses `text`; `label` names it in errors. Throws Error(InvalidArgument): "label: /pointer: reason".
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& label);

/// The text that parse_manifest() reads back as the same.
[[nodiscard]] std::string manifest_text(const Manifest& manifest);

}  // namespace perceptd::model

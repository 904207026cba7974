// Writes the manifest of a package folder. Owns nothing. Never packs a model that the daemon would refuse: it reads
// every file as the daemon does, and scans all weights for NaN and infinity.
#pragma once

#include <string>

#include "model/manifest.hpp"

namespace perceptd::model_tool {

/// What an old manifest says is kept where these are empty.
struct PackOptions {
    std::string folder;
    std::string name;
    std::string version;
    std::string licence;
    std::string description;
    std::string model_file;  ///< empty: the only .gguf file
    std::string draft_file;
    std::string prompt_template;
};

/// Hashes the files of the folder and replaces manifest.json in one step. Throws std::system_error or Error.
model::Manifest pack(const PackOptions& options);

}  // namespace perceptd::model_tool

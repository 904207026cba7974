// Configuration files: JSON with comments, merged layer over layer, each value with the file and line it came from.
// Owns nothing after the call. Knows no key: what is allowed is configuration_schema's business.
// Never writes a file, never falls back to an older file when a newer one is broken.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace perceptd {

/// Where a value was written.
struct ConfigurationOrigin {
    std::string file;
    int line = 0;  ///< from 1
};

/// A tree of values; `origins` is keyed by JSON pointer, "" being the whole. A null is kept: it means "the default".
struct ConfigurationDocument {
    nlohmann::json value = nlohmann::json::object();
    std::map<std::string, ConfigurationOrigin> origins;
};

/// `pointer` + "/" + `key` with the escapes of RFC 6901.
std::string child_pointer(const std::string& pointer, std::string_view key);

/// Parses `text`; `file` is only named in errors. // and /* */ comments are allowed, a repeated key is an error.
/// Throws Error(InvalidConfiguration) as "file:line: reason".
ConfigurationDocument parse_configuration(std::string_view text, const std::string& file);

/// Applies `patch` over `base` as RFC 7386 does, except that null stays as a mark for "the default".
void merge_configuration(ConfigurationDocument& base, const ConfigurationDocument& patch);

/// Reads <root>/usr/share/perceptd/perceptd.json < <root>/etc/perceptd/perceptd.json <
/// <root>/etc/perceptd/conf.d/*.json (byte order of names). Missing files and folders are skipped. Blocks on file I/O:
/// main thread, set-up or reload. Throws Error(InvalidConfiguration) for a file that is there and cannot be read or
/// parsed.
ConfigurationDocument read_configuration_layers(const std::string& root = "");

}  // namespace perceptd

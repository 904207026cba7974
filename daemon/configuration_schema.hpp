// The JSON schema of the configuration, compiled in from config/perceptd.schema.json, and the one strict pass against
// it. Owns the parsed schema for the life of the process. Understands exactly the draft-07 words that this schema uses.
// Never changes a document: a value is right or it is reported.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "configuration_file.hpp"

namespace perceptd {

/// The text of config/perceptd.schema.json as it was when the daemon was built.
std::string_view configuration_schema_text() noexcept;

/// One key that takes a value.
struct ConfigurationKey {
    std::string pointer;   ///< "/sensors/camera/rate_hz"
    std::string unit;      ///< "Hz"; "name" for a choice
    bool is_live = false;  ///< a reload applies it
    nlohmann::json default_value;
};

/// Every key in the order of the schema's names. Thread-safe after the first call.
const std::vector<ConfigurationKey>& configuration_keys();

/// The key at `pointer`, or nullptr.
const ConfigurationKey* find_configuration_key(std::string_view pointer);

/// What is wrong with `document`, one line each: "file:line: /pointer: reason with unit and range". Empty when all is
/// well.
std::vector<std::string> check_configuration(const ConfigurationDocument& document);

}  // namespace perceptd

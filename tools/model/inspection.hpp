// Says what a model file or package holds. Owns nothing. Never runs it, never fails over one bad part: what cannot be
// read is named with the reason.
#pragma once

#include <string>

namespace perceptd::model_tool {

/// The description of a GGUF file or package folder, as text or as one JSON object, and whether the daemon would take
/// it.
struct Inspection {
    std::string text;
    bool is_usable = false;
};

/// Throws std::system_error when `path` cannot be opened.
[[nodiscard]] Inspection inspect(const std::string& path, bool as_json);

}  // namespace perceptd::model_tool

// A model that answers clients: target, draft, the manner of asking. Owns all of it; where it comes from is the
// daemon's. Never shared between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "generate/text_model.hpp"

namespace perceptd::generate {

struct ServedModel {
    std::string name;
    std::string version;
    std::string digest;       ///< of the target's file, hexadecimal: the same tokens need the same file
    std::string prompt_form;  ///< with {prompt}
    std::unique_ptr<TextModel> target;
    std::unique_ptr<TextModel> draft;  ///< null: none
};

/// Threads: everything on the thread that answers.
class ModelSource {
public:
    virtual ~ModelSource() = default;
    /// Loads it if it is not there yet: blocks. `version` empty: the newest. Throws Error that says what to do.
    [[nodiscard]] virtual std::shared_ptr<ServedModel> open(std::string_view name, std::string_view version) = 0;
    /// Lets go of models that nobody has used for long.
    virtual void evict_idle(std::int64_t now_ns) noexcept = 0;
};

}  // namespace perceptd::generate

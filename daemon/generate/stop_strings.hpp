// Finds the strings that end a text, also where one is spread over several tokens. Owns the end of the text that might
// still become one. Never gives out a part of a stop string, never holds back more than the longest of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace perceptd::generate {

/// Thread-bound.
class StopStrings {
public:
    static constexpr std::size_t kCountMax = 16;
    static constexpr std::size_t kBytesMax = 256;  ///< of one

    /// Throws Error(InvalidArgument) for too many, too long or empty strings.
    explicit StopStrings(std::vector<std::string> stops);

    /// Takes `text` in and gives what is sure to stand before any stop string. Nothing more after one was found.
    [[nodiscard]] std::string push(std::string_view text);
    /// The text has ended: what was held back. Nothing after a stop string was found.
    [[nodiscard]] std::string finish();
    [[nodiscard]] bool is_found() const noexcept { return is_found_; }

private:
    std::vector<std::string> stops_;
    std::string held_;
    bool is_found_ = false;
};

}  // namespace perceptd::generate

// Semantic versions 2.0 of packages. Owns its text. Never accepts what the standard does not.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perceptd::model {

/// A semantic version; ordered by its precedence (build metadata does not count).
struct Version {
    std::uint32_t major = 0;
    std::uint32_t minor = 0;
    std::uint32_t patch = 0;
    std::vector<std::string> prerelease;
    std::string text;

    [[nodiscard]] static std::optional<Version> from(std::string_view text);
    [[nodiscard]] std::weak_ordering operator<=>(const Version& other) const;
    [[nodiscard]] bool operator==(const Version& other) const { return (*this <=> other) == 0; }
};

}  // namespace perceptd::model

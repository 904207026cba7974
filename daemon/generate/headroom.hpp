// How much of a context is left, in exact tokens. Owns nothing but the level last told. Never invents a number: an
// unknown capacity has no remainder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace perceptd::generate {

enum class HeadroomLevel : std::uint8_t {
    Normal,
    Soft,  ///< 75 % used: begin to shorten
    Hard,  ///< 90 % used: the next long answer will be refused
};

struct Headroom {
    std::size_t used_tokens = 0;
    std::optional<std::size_t> capacity_tokens;

    [[nodiscard]] constexpr std::optional<std::size_t> remaining_tokens() const noexcept {
        if (!capacity_tokens) {
            return std::nullopt;
        }
        return used_tokens < *capacity_tokens ? *capacity_tokens - used_tokens : 0;
    }
    [[nodiscard]] constexpr HeadroomLevel level() const noexcept {
        if (!capacity_tokens) {
            return HeadroomLevel::Normal;
        }
        if (used_tokens * 100 >= *capacity_tokens * 90) {
            return HeadroomLevel::Hard;
        }
        return used_tokens * 100 >= *capacity_tokens * 75 ? HeadroomLevel::Soft : HeadroomLevel::Normal;
    }
};

/// Tells each level once when it is reached, and again only after the use had fallen below it. Thread-bound.
class HeadroomWatch {
public:
    /// The level that `headroom` has newly reached, if any.
    [[nodiscard]] constexpr std::optional<HeadroomLevel> observe(const Headroom& headroom) noexcept {
        const HeadroomLevel before = level_;
        level_ = headroom.level();
        return level_ > before ? std::optional(level_) : std::nullopt;
    }

private:
    HeadroomLevel level_ = HeadroomLevel::Normal;
};

}  // namespace perceptd::generate

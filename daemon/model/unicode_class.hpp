// Which characters are letters (L*), numbers (N*) or white space (White_Space). Owns the table that
// tools/model/make_unicode_ranges.py makes. Never knows more of Unicode than tokenizers need.
#pragma once

#include <cstdint>

namespace perceptd::model {

enum class UnicodeClass : std::uint8_t { Other, Letter, Number, Space };

/// The class of a scalar value. O(log n); real-time safe.
[[nodiscard]] UnicodeClass class_of(char32_t value) noexcept;

}  // namespace perceptd::model

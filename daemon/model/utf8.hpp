// Reading UTF-8 that may be broken. Owns nothing. Never reads past the text, never skips a byte silently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace perceptd::model {

/// One step through a text.
struct CodePoint {
    char32_t value = 0xfffd;     ///< U+FFFD when the bytes are no character
    std::size_t byte_count = 0;  ///< a maximal broken piece counts as one step; 0 only for an empty text
    bool is_valid = false;
    bool is_cut = false;  ///< broken only because the text ends: more bytes could mend it
};

/// The character at the start of `text`: no overlong forms, no surrogates, nothing above U+10FFFF. Real-time safe.
[[nodiscard]] CodePoint first_code_point(std::string_view text) noexcept;

/// Whether all of `text` is UTF-8. Real-time safe.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

/// Appends `value` (a scalar value) as UTF-8.
void append_utf8(std::string& text, char32_t value);

/// `text` for a message: control characters and broken bytes as \xNN, cut after `max_bytes`.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes = 64);

}  // namespace perceptd::model

// Table 3-7 of the Unicode standard: which second bytes may follow which first ones.
#include "model/utf8.hpp"

namespace perceptd::model {
namespace {

struct Lead {
    std::size_t byte_count = 0;  // 0: cannot start a character
    unsigned second_min = 0x80;
    unsigned second_max = 0xbf;
    unsigned bits = 0;
};

Lead lead_of(unsigned byte) noexcept {
    if (byte < 0x80) {
        return {1, 0, 0, byte};
    }
    if (byte >= 0xc2 && byte <= 0xdf) {
        return {2, 0x80, 0xbf, byte & 0x1fU};
    }
    if (byte >= 0xe0 && byte <= 0xef) {
        return {3, byte == 0xe0 ? 0xa0U : 0x80U, byte == 0xed ? 0x9fU : 0xbfU, byte & 0x0fU};
    }
    if (byte >= 0xf0 && byte <= 0xf4) {
        return {4, byte == 0xf0 ? 0x90U : 0x80U, byte == 0xf4 ? 0x8fU : 0xbfU, byte & 0x07U};
    }
    return {};
}

}  // namespace

CodePoint first_code_point(std::string_view text) noexcept {
    if (text.empty()) {
        return {};
    }
    const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
    if (lead.byte_count == 0) {
        return {0xfffd, 1, false, false};
    }
    char32_t value = lead.bits;
    for (std::size_t i = 1; i < lead.byte_count; ++i) {
        if (i == text.size()) {
            return {0xfffd, i, false, true};
        }
        const unsigned byte = static_cast<unsigned char>(text[i]);
        if (byte < (i == 1 ? lead.second_min : 0x80U) || byte > (i == 1 ? lead.second_max : 0xbfU)) {
            return {0xfffd, i, false, false};
        }
        value = (value << 6) | (byte & 0x3fU);
    }
    return {value, lead.byte_count, true, false};
}

bool is_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const CodePoint point = first_code_point(text);
        if (!point.is_valid) {
            return false;
        }
        text.remove_prefix(point.byte_count);
    }
    return true;
}

void append_utf8(std::string& text, char32_t value) {
    const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (value < 0x80) {
        put(value);
    } else if (value < 0x800) {
        put(0xc0 | (value >> 6));
        put(0x80 | (value & 0x3f));
    } else if (value < 0x10000) {
        put(0xe0 | (value >> 12));
        put(0x80 | ((value >> 6) & 0x3f));
        put(0x80 | (value & 0x3f));
    } else {
        put(0xf0 | (value >> 18));
        put(0x80 | ((value >> 12) & 0x3f));
        put(0x80 | ((value >> 6) & 0x3f));
        put(0x80 | (value & 0x3f));
    }
}

std::string printable(std::string_view text, std::size_t max_bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string shown;
    while (!text.empty() && shown.size() < max_bytes) {
        const CodePoint point = first_code_point(text);
        if (point.is_valid && point.value >= 0x20 && !(point.value >= 0x7f && point.value < 0xa0)) {
            shown.append(text.substr(0, point.byte_count));
        } else {
            for (const char byte : text.substr(0, point.byte_count)) {
                const auto value = static_cast<unsigned char>(byte);
                shown.append("\\x").append(1, kDigits[value >> 4]).append(1, kDigits[value & 0xfU]);
            }
        }
        text.remove_prefix(point.byte_count);
    }
    return text.empty() ? shown : shown + "...";
}

}  // namespace perceptd::model

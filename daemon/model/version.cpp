// Parsing and precedence as semver.org words them.
#include "model/version.hpp"

#include <algorithm>
#include <charconv>

namespace perceptd::model {
namespace {

std::optional<std::uint32_t> number_of(std::string_view text) noexcept {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool has_leading_zero = text.size() > 1 && text[0] == '0';
    return error == std::errc{} && end == text.data() + text.size() && !has_leading_zero ? std::optional(value)
                                                                                         : std::nullopt;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t at = text.find(separator);
        parts.push_back(text.substr(0, at));
        if (at == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(at + 1);
    }
}

bool is_identifier(std::string_view text) noexcept {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    });
}

bool is_digits(std::string_view text) noexcept {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::strong_ordering compare_identifiers(const std::string& a, const std::string& b) noexcept {
    if (is_digits(a) != is_digits(b)) {
        return is_digits(a) ? std::strong_ordering::less : std::strong_ordering::greater;
    }
    // Without leading zeros the longer number is the larger one.
    if (is_digits(a) && a.size() != b.size()) {
        return a.size() <=> b.size();
    }
    return a <=> b;
}

}  // namespace

std::optional<Version> Version::from(std::string_view text) {
    Version version;
    version.text = text;
    if (const std::size_t plus = text.find('+'); plus != std::string_view::npos) {
        for (const std::string_view part : split(text.substr(plus + 1), '.')) {
            if (!is_identifier(part)) {
                return std::nullopt;
            }
        }
        text = text.substr(0, plus);
    }
    if (const std::size_t dash = text.find('-'); dash != std::string_view::npos) {
        for (const std::string_view part : split(text.substr(dash + 1), '.')) {
            if (!is_identifier(part) || (is_digits(part) && part.size() > 1 && part[0] == '0')) {
                return std::nullopt;
            }
            version.prerelease.emplace_back(part);
        }
        text = text.substr(0, dash);
    }
    const auto parts = split(text, '.');
    if (parts.size() != 3) {
        return std::nullopt;
    }
    std::uint32_t* const numbers[] = {&version.major, &version.minor, &version.patch};
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto number = number_of(parts[i]);
        if (!number) {
            return std::nullopt;
        }
        *numbers[i] = *number;
    }
    return version;
}

std::weak_ordering Version::operator<=>(const Version& other) const {
    for (const auto member : {&Version::major, &Version::minor, &Version::patch}) {
        if (this->*member != other.*member) {
            return this->*member <=> other.*member;
        }
    }
    if (prerelease.empty() != other.prerelease.empty()) {
        return prerelease.empty() ? std::weak_ordering::greater : std::weak_ordering::less;
    }
    for (std::size_t i = 0; i < std::min(prerelease.size(), other.prerelease.size()); ++i) {
        if (const auto order = compare_identifiers(prerelease[i], other.prerelease[i]); order != 0) {
            return order;
        }
    }
    return prerelease.size() <=> other.prerelease.size();
}

}  // namespace perceptd::model

// A check for CLI11 options that are unsigned numbers: by itself it takes "-1" for the largest number and cuts what is
// too large. Owns nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

namespace perceptd {

/// "" for decimal digits that are at most `largest`, else what the text must be.
inline std::string whole_number_problem(const std::string& text, std::uint64_t largest) {
    std::uint64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_good = fault == std::errc() && end == text.data() + text.size() && value <= largest;
    return is_good ? "" : "\"" + text + "\" must be a whole number from 0 to " + std::to_string(largest);
}

/// To be checked before the option's own range.
template <typename Number>
CLI::Validator whole_number() {
    return {[](const std::string& text) { return whole_number_problem(text, std::numeric_limits<Number>::max()); }, ""};
}

}  // namespace perceptd

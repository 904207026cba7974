// Bisection over the generated ranges; ASCII is answered directly.
#include "model/unicode_class.hpp"

#include <algorithm>
#include <iterator>

#include "model/unicode_ranges.hpp"

namespace perceptd::model {
namespace {

UnicodeClass ascii_class(char32_t value) noexcept {
    if ((value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z')) {
        return UnicodeClass::Letter;
    }
    if (value >= '0' && value <= '9') {
        return UnicodeClass::Number;
    }
    return value == ' ' || (value >= '\t' && value <= '\r') ? UnicodeClass::Space : UnicodeClass::Other;
}

}  // namespace

UnicodeClass class_of(char32_t value) noexcept {
    if (value < 0x80) {
        return ascii_class(value);
    }
    const auto* const after =
        std::upper_bound(std::begin(kUnicodeRanges), std::end(kUnicodeRanges), value,
                         [](char32_t wanted, const UnicodeRange& range) { return wanted < range.first; });
    if (after == std::begin(kUnicodeRanges)) {
        return UnicodeClass::Other;
    }
    const UnicodeRange& range = *(after - 1);
    return value < range.first + range.count ? static_cast<UnicodeClass>(range.kind) : UnicodeClass::Other;
}

}  // namespace perceptd::model

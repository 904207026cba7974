// The alternatives in the order of the expression; the first that matches at the start wins.
#include "model/pretokenizer.hpp"

#include <array>

#include "model/unicode_class.hpp"
#include "model/utf8.hpp"

namespace perceptd::model {
namespace {

/// A place in the text with the class of the character there.
class Cursor {
public:
    explicit Cursor(std::string_view text) noexcept : text_(text) { look(); }

    [[nodiscard]] std::size_t at() const noexcept { return at_; }
    [[nodiscard]] bool is_end() const noexcept { return at_ == text_.size(); }
    [[nodiscard]] char32_t value() const noexcept { return point_.value; }
    [[nodiscard]] bool is(UnicodeClass wanted) const noexcept { return !is_end() && class_ == wanted; }
    [[nodiscard]] bool is_newline() const noexcept {
        return !is_end() && (point_.value == '\r' || point_.value == '\n');
    }

    void step() noexcept {
        at_ += point_.byte_count;
        look();
    }
    void skip(UnicodeClass wanted) noexcept {
        while (is(wanted)) {
            step();
        }
    }

private:
    void look() noexcept {
        point_ = first_code_point(text_.substr(at_));
        class_ = point_.is_valid ? class_of(point_.value) : UnicodeClass::Other;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    CodePoint point_;
    UnicodeClass class_ = UnicodeClass::Other;
};

std::size_t contraction_bytes(std::string_view text, bool any_case) noexcept {
    constexpr std::array<std::string_view, 7> kEndings{"s", "t", "re", "ve", "m", "ll", "d"};
    if (text.size() < 2 || text[0] != '\'') {
        return 0;
    }
    const auto lower = [&](char letter) {
        return any_case && letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    };
    for (const std::string_view ending : kEndings) {
        if (text.size() > ending.size() && lower(text[1]) == ending[0] &&
            (ending.size() == 1 || lower(text[2]) == ending[1])) {
            return ending.size() + 1;
        }
    }
    return 0;
}

/// \s*[\r\n]+ if `to_newline`, then \s+(?!\S), then \s+. 0 when the text starts with no white space.
std::size_t space_bytes(std::string_view text, bool to_newline) noexcept {
    std::size_t before_last = 0;
    std::size_t after_newline = 0;
    Cursor cursor(text);
    while (cursor.is(UnicodeClass::Space)) {
        const bool is_newline = cursor.is_newline();
        before_last = cursor.at();
        cursor.step();
        after_newline = is_newline ? cursor.at() : after_newline;
    }
    if (to_newline && after_newline > 0) {
        return after_newline;
    }
    // The last space stays for the word that follows it, unless it is the only one.
    return cursor.is_end() || before_last == 0 ? cursor.at() : before_last;
}

/// " ?" and then one or more of `wanted`; 0 if that does not match.
std::size_t spaced_run_bytes(std::string_view text, UnicodeClass wanted, bool with_newlines) noexcept {
    Cursor cursor(text);
    if (cursor.value() == ' ') {
        cursor.step();
    }
    if (!cursor.is(wanted)) {
        return 0;
    }
    cursor.skip(wanted);
    while (with_newlines && cursor.is_newline()) {
        cursor.step();
    }
    return cursor.at();
}

std::size_t gpt2_bytes(std::string_view text) noexcept {
    if (const std::size_t bytes = contraction_bytes(text, false); bytes > 0) {
        return bytes;
    }
    for (const UnicodeClass wanted : {UnicodeClass::Letter, UnicodeClass::Number, UnicodeClass::Other}) {
        if (const std::size_t bytes = spaced_run_bytes(text, wanted, false); bytes > 0) {
            return bytes;
        }
    }
    return space_bytes(text, false);
}

/// [^\r\n\p{L}\p{N}]?\p{L}+
std::size_t led_letters_bytes(std::string_view text) noexcept {
    Cursor cursor(text);
    if (!cursor.is_newline() && !cursor.is(UnicodeClass::Letter) && !cursor.is(UnicodeClass::Number)) {
        cursor.step();
    }
    if (!cursor.is(UnicodeClass::Letter)) {
        return 0;
    }
    cursor.skip(UnicodeClass::Letter);
    return cursor.at();
}

std::size_t digits_bytes(std::string_view text, int max_count) noexcept {
    Cursor cursor(text);
    for (int i = 0; i < max_count && cursor.is(UnicodeClass::Number); ++i) {
        cursor.step();
    }
    return cursor.at();
}

std::size_t llama3_bytes(std::string_view text, int max_digit_count) noexcept {
    if (const std::size_t bytes = contraction_bytes(text, true); bytes > 0) {
        return bytes;
    }
    if (const std::size_t bytes = led_letters_bytes(text); bytes > 0) {
        return bytes;
    }
    if (const std::size_t bytes = digits_bytes(text, max_digit_count); bytes > 0) {
        return bytes;
    }
    if (const std::size_t bytes = spaced_run_bytes(text, UnicodeClass::Other, true); bytes > 0) {
        return bytes;
    }
    return space_bytes(text, true);
}

}  // namespace

std::optional<Pretokenizer> pretokenizer_from(std::string_view name) noexcept {
    if (name == "default" || name == "gpt-2") {
        return Pretokenizer::Gpt2;
    }
    if (name == "llama-bpe") {
        return Pretokenizer::Llama3;
    }
    return name == "qwen2" ? std::optional(Pretokenizer::Qwen2) : std::nullopt;
}

std::size_t first_word_bytes(std::string_view text, Pretokenizer pretokenizer) noexcept {
    constexpr int kLlama3DigitCount = 3;
    switch (pretokenizer) {
        case Pretokenizer::Gpt2: return gpt2_bytes(text);
        case Pretokenizer::Llama3: return llama3_bytes(text, kLlama3DigitCount);
        case Pretokenizer::Qwen2: return llama3_bytes(text, 1);
    }
    return text.size();
}

}  // namespace perceptd::model

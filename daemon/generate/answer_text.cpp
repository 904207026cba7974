#include "generate/answer_text.hpp"

#include <array>
#include <utility>

namespace perceptd::generate {

const char* name_of(FinishReason reason) noexcept {
    switch (reason) {
        case FinishReason::None: return "none";
        case FinishReason::StopToken: return "stop_token";
        case FinishReason::StopString: return "stop_string";
        case FinishReason::TokensMax: return "tokens_max";
        case FinishReason::Cancelled: return "cancelled";
        case FinishReason::Failed: return "failed";
        case FinishReason::Interrupted: return "interrupted";
    }
    return "unknown";
}

FinishReason finish_reason_of(std::string_view name) noexcept {
    constexpr std::array kReasons{FinishReason::StopToken, FinishReason::StopString, FinishReason::TokensMax,
                                  FinishReason::Cancelled, FinishReason::Failed};
    for (const FinishReason reason : kReasons) {
        if (name == name_of(reason)) {
            return reason;
        }
    }
    return FinishReason::Interrupted;
}

AnswerText::AnswerText(const model::Vocabulary& vocabulary, std::vector<std::string> stops, bool continues_text)
    : vocabulary_(&vocabulary), text_(vocabulary, {.continues_text = continues_text}), stops_(std::move(stops)) {}

std::string AnswerText::take(std::uint32_t token) {
    const auto id = static_cast<model::TokenId>(token);
    if (vocabulary_->kind_of(id) == model::TokenKind::Control || vocabulary_->eos() == id) {
        end_ = FinishReason::StopToken;
        return {};
    }
    std::string text = stops_.push(text_.push(id));
    if (stops_.is_found()) {
        end_ = FinishReason::StopString;
    }
    return text;
}

std::string AnswerText::finish() {
    std::string text = stops_.push(text_.finish());
    return text + stops_.finish();
}

}  // namespace perceptd::generate

// The text of an answer as its tokens come: whole characters, nothing of a stop string, and the reason when a token
// ends it. Owns what is held back. Never depends on how the tokens were bundled: the same tokens give the same text,
// token by token, so that an answer can be told again from any number on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generate/stop_strings.hpp"
#include "model/text_stream.hpp"

namespace perceptd::generate {

enum class FinishReason : std::uint8_t {
    None,        ///< it goes on
    StopToken,   ///< the model ended it
    StopString,  ///< one of the caller's strings would have come
    TokensMax,
    Cancelled,
    Failed,       ///< Generation::status() says what
    Interrupted,  ///< the daemon stopped in the middle; it can go on
};

/// The name of `reason` in lower snake case.
[[nodiscard]] const char* name_of(FinishReason reason) noexcept;
/// The reason of that name; Interrupted for any other.
[[nodiscard]] FinishReason finish_reason_of(std::string_view name) noexcept;

/// Thread-bound. Borrows the vocabulary.
class AnswerText {
public:
    /// Throws what StopStrings throws. `continues_text`: the answer goes on with a text, its first space is one.
    AnswerText(const model::Vocabulary& vocabulary, std::vector<std::string> stops, bool continues_text);

    /// What is sure of the text now that `token` has come. Throws Error(InvalidArgument) for an unknown id.
    [[nodiscard]] std::string take(std::uint32_t token);
    /// None, StopToken or StopString: whether the last token ended the answer.
    [[nodiscard]] FinishReason end() const noexcept { return end_; }
    /// The answer is over, for whatever reason: what was held back.
    [[nodiscard]] std::string finish();

private:
    const model::Vocabulary* vocabulary_;
    model::TextStream text_;
    StopStrings stops_;
    FinishReason end_ = FinishReason::None;
};

}  // namespace perceptd::generate

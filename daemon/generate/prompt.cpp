// Three parts, encoded each by its own rule.
#include "generate/prompt.hpp"

#include "base/error.hpp"

namespace perceptd::generate {

std::vector<std::uint32_t> encode_prompt(const model::Tokenizer& tokenizer, std::string_view form,
                                         std::string_view text) {
    const std::size_t mark = form.find(kPromptMark);
    if (mark == std::string_view::npos) {
        throw Error(ErrorCode::InvalidArgument,
                    "the prompt template has no {prompt}; nothing of the text would be asked");
    }
    std::vector<std::uint32_t> ids;
    const model::Vocabulary& vocabulary = tokenizer.vocabulary();
    if (vocabulary.adds_bos()) {
        ids.push_back(static_cast<std::uint32_t>(*vocabulary.bos()));
    }
    const auto add = [&](std::string_view part, bool reads_control_tokens) {
        for (const model::TokenId id :
             tokenizer.encode(part, {.reads_control_tokens = reads_control_tokens, .adds_bos_eos = false})) {
            ids.push_back(static_cast<std::uint32_t>(id));
        }
    };
    add(form.substr(0, mark), true);
    add(text, false);
    add(form.substr(mark + kPromptMark.size()), true);
    return ids;
}

}  // namespace perceptd::generate

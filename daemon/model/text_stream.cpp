// Appends bytes, gives out the longest whole part.
#include "model/text_stream.hpp"

#include "base/error.hpp"
#include "model/utf8.hpp"

namespace perceptd::model {
void TextStream::take(TokenId id) {
    if (!vocabulary_->contains(id)) {
        throw Error(ErrorCode::InvalidArgument, "token " + std::to_string(id) + " is not one of the vocabulary's " +
                                                    std::to_string(vocabulary_->size()));
    }
    const TokenKind kind = vocabulary_->kind_of(id);
    std::string_view bytes = vocabulary_->bytes_of(id);
    if (kind == TokenKind::Control || kind == TokenKind::Unused) {
        held_ += writes_control_tokens_ ? bytes : "";
        drops_space_ = drops_space_ || (kind == TokenKind::Control && vocabulary_->adds_space_prefix());
        return;
    }
    if (drops_space_ && kind != TokenKind::UserDefined && bytes.starts_with(' ')) {
        bytes.remove_prefix(1);
    }
    drops_space_ = false;
    held_ += bytes;
}

std::string TextStream::push(TokenId id) {
    take(id);
    return complete(false);
}

std::string TextStream::finish() {
    drops_space_ = vocabulary_->adds_space_prefix();
    return complete(true);
}

std::string TextStream::complete(bool is_last) {
    std::string text;
    std::string_view rest = held_;
    while (!rest.empty()) {
        const CodePoint point = first_code_point(rest);
        if (point.is_cut && !is_last) {
            break;
        }
        append_utf8(text, point.value);
        rest.remove_prefix(point.byte_count);
    }
    held_.erase(0, held_.size() - rest.size());
    return text;
}

std::string decode_bytes(const Vocabulary& vocabulary, std::span<const TokenId> ids) {
    TextStream stream(vocabulary);
    for (const TokenId id : ids) {
        stream.take(id);
    }
    return std::move(stream.held_);
}

}  // namespace perceptd::model

#include "generate/answer_log.hpp"

#include <algorithm>

namespace perceptd::generate {

void AnswerLog::append(const Piece& piece, const Headroom& headroom) {
    const std::lock_guard lock(mutex_);
    headroom_ = headroom;
    tokens_.insert(tokens_.end(), piece.tokens.begin(), piece.tokens.end());
    for (std::size_t i = 0; i < piece.tokens.size(); ++i) {
        text_ends_.push_back(text_.size() + piece.text_ends[i]);
    }
    const std::size_t sure = piece.text_ends.empty() ? 0 : piece.text_ends.back();
    text_ += piece.text.substr(0, sure);
    if (piece.finish != FinishReason::None) {
        tail_ = piece.text.substr(sure);
        finish_ = piece.finish;
    }
}

void AnswerLog::end(FinishReason finish, const std::string& failure) {
    const std::lock_guard lock(mutex_);
    if (finish_ == FinishReason::None) {
        finish_ = finish;
        failure_ = failure;
    }
}

AnswerPart AnswerLog::read(std::uint64_t first, std::size_t tokens_max) const {
    const std::lock_guard lock(mutex_);
    AnswerPart part{.first_number = first, .headroom = headroom_};
    if (first > tokens_.size()) {
        part.finish = finish_;  // the reader knows more than there is: it has had everything
        part.failure = failure_;
        return part;
    }
    const std::size_t end = std::min<std::size_t>(tokens_.size(), first + tokens_max);
    part.tokens.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(first),
                       tokens_.begin() + static_cast<std::ptrdiff_t>(end));
    const auto text_before = [this](std::uint64_t number) { return number == 0 ? 0 : text_ends_[number - 1]; };
    part.text = text_.substr(text_before(first), text_before(end) - text_before(first));
    if (end == tokens_.size()) {
        part.finish = finish_;
        part.failure = failure_;
        part.text += finish_ == FinishReason::None ? std::string() : tail_;
    }
    return part;
}

FinishReason AnswerLog::finish() const {
    const std::lock_guard lock(mutex_);
    return finish_;
}

std::uint64_t AnswerLog::token_count() const {
    const std::lock_guard lock(mutex_);
    return tokens_.size();
}

}  // namespace perceptd::generate

// All that an answer has said so far, to be read from any number on by any number of readers. Owns tokens and text.
// Never waits for a reader: one that does not read costs nothing but its place.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "generate/generation.hpp"

namespace perceptd::generate {

/// A part of an answer. `finish` is set with the part behind which nothing comes; `text` of that part ends the text.
struct AnswerPart {
    std::uint64_t first_number = 0;
    std::vector<std::uint32_t> tokens;
    std::string text;
    FinishReason finish = FinishReason::None;
    std::string failure;  ///< Failed: why
    Headroom headroom;    ///< as it is now
};

/// Threads: one writes, any read.
class AnswerLog {
public:
    void append(const Piece& piece, const Headroom& headroom);
    /// Ends it without a token; what end it has already stays.
    void end(FinishReason finish, const std::string& failure);
    /// At most `tokens_max` tokens from number `first` on; nothing (and no end) where the answer is not so far yet.
    [[nodiscard]] AnswerPart read(std::uint64_t first, std::size_t tokens_max) const;

    [[nodiscard]] FinishReason finish() const;
    [[nodiscard]] std::uint64_t token_count() const;

private:
    mutable std::mutex mutex_;
    std::vector<std::uint32_t> tokens_;
    std::vector<std::size_t> text_ends_;
    std::string text_;
    std::string tail_;  ///< what the end let go
    Headroom headroom_;
    FinishReason finish_ = FinishReason::None;
    std::string failure_;
};

}  // namespace perceptd::generate

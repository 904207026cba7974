// What a client asks a model, and the same as bytes for the store: enough to go on with the answer after a crash.
// Owns its values. Never trusted when it comes back: a file may have been altered.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generate/generation.hpp"

namespace perceptd::generate {

struct Question {
    static constexpr std::size_t kTokensDefault = 256;

    std::string model;
    std::string version;       ///< empty: the newest
    std::string text;          ///< UTF-8
    std::uint64_t thread = 0;  ///< an earlier answer of the dialogue that goes on; 0: a new one
    bool has_seed = false;     ///< false: the daemon draws one
    /// tokens_max 0: kTokensDefault, or what the context has left.
    GenerationOptions options{.tokens_max = 0};
};

/// Throws Error(InvalidArgument) that says what to change: an empty text, bytes that are no UTF-8, too many biases.
void check(const Question& question);

/// Model version and options; text and thread are the turn's own.
[[nodiscard]] std::string encoded(const Question& question);
/// False when `bytes` is not what encoded() makes.
[[nodiscard]] bool decode(std::string_view bytes, Question& question);
/// Two questions with the same digest sample alike.
[[nodiscard]] std::uint64_t sampling_digest(const Question& question);

}  // namespace perceptd::generate

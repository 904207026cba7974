// Where guesses of the next tokens come from. A drafter may guess anything: the text is the target's, so a bad guess
// costs time and never a byte. Owns what the source needs to know of the text. Never sees the target's logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace perceptd::generate {

/// The longest draft that anybody asks for.
inline constexpr std::size_t kDraftTokensMax = 16;

/// Thread-bound.
class Drafter {
public:
    Drafter() = default;
    Drafter(const Drafter&) = delete;
    Drafter& operator=(const Drafter&) = delete;
    virtual ~Drafter() = default;

    /// A generation begins; `tokens_max` bounds the contexts to come. May allocate. What the source learnt from earlier
    /// generations may stay: one drafter belongs to one client.
    virtual void begin(std::size_t tokens_max) = 0;
    /// Guesses the tokens behind `context` (prompt and all confirmed tokens; it only grows within a generation) into
    /// `drafted` and says how many, at most drafted.size() <= kDraftTokensMax. Real-time.
    [[nodiscard]] virtual std::size_t draft(std::span<const std::uint32_t> context,
                                            std::span<std::uint32_t> drafted) noexcept = 0;
};

}  // namespace perceptd::generate

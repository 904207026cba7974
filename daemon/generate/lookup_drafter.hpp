// Prompt lookup: what followed the last few tokens when they stood in this text before will follow again. Free of any
// model; good where answers repeat their prompt. Owns an index of n-grams of the one text.
#pragma once

#include <vector>

#include "generate/drafter.hpp"

namespace perceptd::generate {

/// Looks for the longest of the last 4, 3 and 2 tokens and copies what followed its most recent earlier place.
class LookupDrafter final : public Drafter {
public:
    void begin(std::size_t tokens_max) override;
    [[nodiscard]] std::size_t draft(std::span<const std::uint32_t> context,
                                    std::span<std::uint32_t> drafted) noexcept override;

private:
    static constexpr std::size_t kShortest = 2;
    static constexpr std::size_t kLongest = 4;

    [[nodiscard]] std::uint32_t& slot_of(std::span<const std::uint32_t> gram) noexcept;

    // One slot per hash, the newest place wins; a collision loses a guess, and the tokens are compared before a copy.
    std::vector<std::uint32_t> ends_;  // where the n-gram ended; 0: nowhere
    std::size_t indexed_ = 0;          // n-grams that end up to here are in
};

}  // namespace perceptd::generate

// How many tokens to draft: the depth with the most tokens per time, out of what the passes have shown to be accepted
// and to cost. Owns the estimates. Never changes the text, only its speed; never drafts for long where drafting loses.
//
// The best of six depths is found by trying all: the stopping rule (draft token k + 1 iff the chance that it counts is
// above its cost times the best rate) finds the same where costs are convex, and kernels with fixed widths are not.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "generate/acceptance_estimate.hpp"

namespace perceptd::generate {

inline constexpr std::array<std::uint32_t, 6> kDepths{0, 1, 2, 4, 8, 16};

struct DepthOptions {
    std::optional<std::uint32_t> fixed;  ///< 0 to kDraftTokensMax: always so many
    AcceptanceOptions acceptance;
    double hysteresis = 0.05;         ///< a change must promise so much more than the present depth
    double least_gain = 0.03;         ///< drafting that promises less over none is switched off
    std::uint32_t probe_tokens = 64;  ///< switched off, it is tried again after so many tokens
    double probe_evidence = 8;        ///< observations that an old verdict weighs against a try
    double unknown_row_cost = 0.08;   ///< of a pass, per row, until a depth has been measured
};

/// Thread-bound, real-time safe.
class Depth {
public:
    /// Throws Error(InvalidArgument) when `fixed` is beyond kDraftTokensMax.
    explicit Depth(const DepthOptions& options = {});

    /// For the next pass.
    [[nodiscard]] std::uint32_t choose() noexcept;
    /// What came of it. `drafted` may be less than was chosen: a source may have no guess.
    void note(std::uint32_t drafted, std::uint32_t accepted) noexcept;
    /// What it cost, drafting and verification together, in any unit that stays the same.
    void note_cost(std::uint32_t drafted, double cost) noexcept;

    /// Tokens per cost at `depth`, and the cost; 0 and 0 before anything was measured.
    [[nodiscard]] double rate_of(std::uint32_t depth) const noexcept;
    [[nodiscard]] double cost_of(std::uint32_t depth) const noexcept;
    [[nodiscard]] const AcceptanceEstimate& acceptance() const noexcept { return acceptance_; }
    [[nodiscard]] bool is_off() const noexcept { return !options_.fixed && current_ == 0; }

private:
    void revise() noexcept;

    DepthOptions options_;
    AcceptanceEstimate acceptance_;
    std::array<double, kDepths.size()> costs_{};  // 0: never measured
    std::uint32_t current_ = 4;
    std::uint32_t tokens_off_ = 0;
    bool is_probing_ = false;
};

}  // namespace perceptd::generate

// How likely the target is to accept the draft's k-th token when it accepted all before: one Beta estimate per
// position, fed only by what a pass has shown. Owns the counts. Never counts a token behind a rejection: nobody has
// judged it (accepted / drafted is no acceptance; at 0.8 and 16 drafted tokens it would read 0.24).
#pragma once

#include <array>
#include <cstddef>

#include "generate/drafter.hpp"

namespace perceptd::generate {

struct AcceptanceOptions {
    double prior = 0.7;       ///< of the first position before anything is known
    double prior_weight = 2;  ///< in observations; a later position's prior is the estimate of the one before
    /// What an observation weighs after another pass with a draft, whether that judged its position or not: a verdict
    /// on a depth that is no longer tried fades, and the depth is tried again.
    double forgetting = 0.98;
};

/// Thread-bound, real-time safe.
class AcceptanceEstimate {
public:
    explicit AcceptanceEstimate(const AcceptanceOptions& options = {}) noexcept : options_(options) {}

    /// A pass accepted the first `accepted` of `drafted` <= kDraftTokensMax tokens.
    void note(std::size_t drafted, std::size_t accepted) noexcept;
    /// Scales what is known down to `weight` observations per position, so that news counts more.
    void weaken(double weight) noexcept;

    /// Of position `index` (0: the first drafted token).
    [[nodiscard]] double probability(std::size_t index) const noexcept;
    /// Tokens that a pass with `drafted` tokens yields: 1 + a1 + a1 a2 + ..; the target adds the 1.
    [[nodiscard]] double tokens_per_pass(std::size_t drafted) const noexcept;

private:
    struct Counts {
        double accepted = 0;
        double rejected = 0;
    };
    [[nodiscard]] double posterior(std::size_t index, double prior) const noexcept;

    AcceptanceOptions options_;
    std::array<Counts, kDraftTokensMax> counts_{};
};

}  // namespace perceptd::generate

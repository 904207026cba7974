// Positions are few, so every question walks them from the first.
#include "generate/acceptance_estimate.hpp"

#include <algorithm>

namespace perceptd::generate {

void AcceptanceEstimate::note(std::size_t drafted, std::size_t accepted) noexcept {
    if (drafted == 0) {
        return;
    }
    for (Counts& counts : counts_) {
        counts.accepted *= options_.forgetting;
        counts.rejected *= options_.forgetting;
    }
    for (std::size_t i = 0; i < std::min(drafted, accepted + 1); ++i) {
        ++(i < accepted ? counts_[i].accepted : counts_[i].rejected);
    }
}

void AcceptanceEstimate::weaken(double weight) noexcept {
    for (Counts& counts : counts_) {
        const double factor = weight / std::max(counts.accepted + counts.rejected, weight);
        counts.accepted *= factor;
        counts.rejected *= factor;
    }
}

double AcceptanceEstimate::posterior(std::size_t index, double prior) const noexcept {
    const Counts& counts = counts_[index];
    return (counts.accepted + options_.prior_weight * prior) /
           (counts.accepted + counts.rejected + options_.prior_weight);
}

double AcceptanceEstimate::probability(std::size_t index) const noexcept {
    double probability = options_.prior;
    for (std::size_t i = 0; i <= index; ++i) {
        probability = posterior(i, probability);
    }
    return probability;
}

double AcceptanceEstimate::tokens_per_pass(std::size_t drafted) const noexcept {
    double tokens = 1;
    double reached = 1;
    double probability = options_.prior;
    for (std::size_t i = 0; i < drafted; ++i) {
        probability = posterior(i, probability);
        reached *= probability;
        tokens += reached;
    }
    return tokens;
}

}  // namespace perceptd::generate

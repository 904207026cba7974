// Costs are running means; a sample far above its mean counts as four times the mean, so that a pass during which the
// thread was not running does not switch drafting off.
#include "generate/depth.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace perceptd::generate {
namespace {

constexpr double kCostShare = 0.1;        // of the newest sample in the mean
constexpr double kCommonShare = 0.75;     // of a change that is taken to be the machine's, not the depth's
constexpr double kLargestJump = 4;        // of a sample over the mean
constexpr std::uint32_t kProbeDepth = 1;  // the cheapest that tells anything

}  // namespace

Depth::Depth(const DepthOptions& options) : options_(options), acceptance_(options.acceptance) {
    if (options.fixed && *options.fixed > kDraftTokensMax) {
        throw Error(ErrorCode::InvalidArgument, "a draft depth of " + std::to_string(*options.fixed) + "; at most " +
                                                    std::to_string(kDraftTokensMax) + " tokens are drafted at once");
    }
}

std::uint32_t Depth::choose() noexcept {
    if (options_.fixed) {
        return *options_.fixed;
    }
    if (costs_[0] == 0 && current_ != 0) {
        return 0;  // one plain pass first: every gain is measured against it
    }
    if (current_ == 0 && tokens_off_ >= options_.probe_tokens) {
        is_probing_ = true;
        return kProbeDepth;
    }
    return current_;
}

void Depth::note(std::uint32_t drafted, std::uint32_t accepted) noexcept {
    acceptance_.note(drafted, accepted);
    if (current_ == 0) {
        tokens_off_ += accepted + 1;
        if (is_probing_ && accepted == 0) {
            is_probing_ = false;  // a try that bore fruit is repeated at once, another waits
            tokens_off_ = 0;
        }
    }
    revise();
}

void Depth::note_cost(std::uint32_t drafted, double cost) noexcept {
    const auto* const place = std::find(kDepths.begin(), kDepths.end(), drafted);
    if (place == kDepths.end() || !(cost > 0)) {
        return;
    }
    double& mean = costs_[static_cast<std::size_t>(place - kDepths.begin())];
    if (mean == 0) {
        mean = cost;
        return;
    }
    // A machine that becomes slower is slower at every depth: without that a busy minute would favour what ran before
    // it.
    const double change = kCostShare * (std::min(cost / mean, kLargestJump) - 1);
    for (double& other : costs_) {
        other *= 1 + (&other == &mean ? change : kCommonShare * change);
    }
}

double Depth::cost_of(std::uint32_t depth) const noexcept {
    // Between two measured depths a line; beyond the last a guess that is low, so that the depth is tried once.
    std::size_t below = 0;
    for (std::size_t i = 0; i < kDepths.size(); ++i) {
        if (costs_[i] == 0) {
            continue;
        }
        if (kDepths[i] >= depth) {
            if (kDepths[i] == depth || costs_[below] == 0) {
                return costs_[i];
            }
            const double share = static_cast<double>(depth - kDepths[below]) / (kDepths[i] - kDepths[below]);
            return costs_[below] + share * (costs_[i] - costs_[below]);
        }
        below = i;
    }
    return costs_[below] + costs_[0] * options_.unknown_row_cost * (depth - kDepths[below]);
}

double Depth::rate_of(std::uint32_t depth) const noexcept {
    const double cost = cost_of(depth);
    return cost > 0 ? acceptance_.tokens_per_pass(depth) / cost : 0;
}

void Depth::revise() noexcept {
    const double plain = rate_of(0);
    if (options_.fixed || plain == 0) {
        return;
    }
    std::uint32_t best = 0;
    for (const std::uint32_t depth : kDepths) {
        best = rate_of(depth) > rate_of(best) ? depth : best;
    }
    if (rate_of(best) < plain * (1 + options_.least_gain)) {
        best = 0;
    }
    if (best == 0 && current_ != 0) {
        tokens_off_ = 0;
        is_probing_ = false;
        acceptance_.weaken(options_.probe_evidence);
        current_ = 0;
    } else if (rate_of(best) > rate_of(current_) * (1 + options_.hysteresis)) {
        current_ = best;
        is_probing_ = false;
    }
}

}  // namespace perceptd::generate

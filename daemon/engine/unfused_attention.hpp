// Attention as three operations with the scores in memory between them: what the fused form is compared with.
// Owns nothing. Never used in a plan that fuses; a tree of drafts needs the fused form.
#pragma once

#include "engine/step.hpp"

namespace perceptd::engine {

/// Keys and values of the pass into the cache.
void write_kv(const Step& step, const StepContext& context, Worker& worker) noexcept;
/// query . key * scale for every token, head and visible position; the rest of a row is minus infinity.
void scores(const Step& step, const StepContext& context, Worker& worker) noexcept;
void softmax_scores(const Step& step, const StepContext& context, Worker& worker) noexcept;
/// sum of share * value, positions ascending.
void weighted_sum(const Step& step, const StepContext& context, Worker& worker) noexcept;

}  // namespace perceptd::engine

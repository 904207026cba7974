// The n-grams that end with the context itself are entered only when the next token is known: they have no followers.
#include "generate/lookup_drafter.hpp"

#include <algorithm>
#include <bit>

#include "sensor/counter_rng.hpp"

namespace perceptd::generate {

void LookupDrafter::begin(std::size_t tokens_max) {
    constexpr std::size_t kSlotsPerToken = 2 * (kLongest - kShortest + 1);
    ends_.assign(std::bit_ceil(std::max<std::size_t>(tokens_max, 1) * kSlotsPerToken), 0);
    indexed_ = 0;
}

std::uint32_t& LookupDrafter::slot_of(std::span<const std::uint32_t> gram) noexcept {
    std::uint64_t hash = gram.size();
    for (const std::uint32_t token : gram) {
        hash = sensor::mixed_bits(hash * 31 + token + 1);
    }
    return ends_[hash & (ends_.size() - 1)];
}

std::size_t LookupDrafter::draft(std::span<const std::uint32_t> context, std::span<std::uint32_t> drafted) noexcept {
    for (; indexed_ + 1 < context.size(); ++indexed_) {
        for (std::size_t n = kShortest; n <= std::min(kLongest, indexed_ + 1); ++n) {
            slot_of(context.subspan(indexed_ + 1 - n, n)) = static_cast<std::uint32_t>(indexed_ + 1);
        }
    }
    for (std::size_t n = std::min(kLongest, context.size()); n >= kShortest; --n) {
        const auto gram = context.last(n);
        const std::size_t end = slot_of(gram);
        if (end >= n && std::equal(gram.begin(), gram.end(), context.begin() + static_cast<std::ptrdiff_t>(end - n))) {
            // A copy that reaches the end goes on with what it has written: a repetition repeats.
            for (std::size_t i = 0; i < drafted.size(); ++i) {
                const std::size_t from = end + i;
                drafted[i] = from < context.size() ? context[from] : drafted[from - context.size()];
            }
            return drafted.size();
        }
    }
    return 0;
}

}  // namespace perceptd::generate

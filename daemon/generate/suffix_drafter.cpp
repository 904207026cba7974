// Blumer's automaton, online. An automaton of n tokens has fewer than 2n states and 3n edges, so all memory is taken at
// once.
#include "generate/suffix_drafter.hpp"

#include <algorithm>
#include <bit>

#include "sensor/counter_rng.hpp"

namespace perceptd::generate {

void SuffixDrafter::begin(std::size_t tokens_max) {
    is_new_ = true;
    const std::size_t text_max = std::max(text_max_, 2 * tokens_max);
    if (states_.empty() || text_max > text_max_ || text_.size() + tokens_max > text_max) {
        rebuild(text_max);
    }
}

void SuffixDrafter::rebuild(std::size_t text_max) {
    const std::vector<std::uint32_t> old = std::move(text_);
    text_max_ = text_max;
    text_ = {};
    text_.reserve(text_max);
    states_.clear();
    states_.reserve(2 * text_max + 2);
    states_.push_back({});
    edges_.clear();
    edges_.reserve(3 * text_max + 4);
    slots_.assign(std::bit_ceil(6 * text_max + 8), kNone);
    last_ = match_ = kRoot;
    match_length_ = 0;
    const std::size_t kept = std::min(old.size(), text_max / 2);
    for (std::size_t i = old.size() - kept; i < old.size(); ++i) {
        feed(old[i]);
    }
    context_begin_ = text_.size();  // an empty context, which any next one continues
}

std::size_t SuffixDrafter::slot_of(std::uint32_t from, std::uint32_t token) const noexcept {
    std::size_t slot = sensor::mixed_bits((std::uint64_t{from} << 32 | token) + 1) & (slots_.size() - 1);
    while (slots_[slot] != kNone && (edges_[slots_[slot]].from != from || edges_[slots_[slot]].token != token)) {
        slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
}

std::uint32_t SuffixDrafter::target_of(std::uint32_t from, std::uint32_t token) const noexcept {
    const std::uint32_t edge = slots_[slot_of(from, token)];
    return edge == kNone ? kNone : edges_[edge].to;
}

void SuffixDrafter::add_edge(std::uint32_t from, std::uint32_t token, std::uint32_t to) noexcept {
    slots_[slot_of(from, token)] = static_cast<std::uint32_t>(edges_.size());
    edges_.push_back({from, token, to, states_[from].first_edge});
    states_[from].first_edge = static_cast<std::uint32_t>(edges_.size() - 1);
}

std::uint32_t SuffixDrafter::split(std::uint32_t parent, std::uint32_t child, std::uint32_t token) noexcept {
    const auto clone = static_cast<std::uint32_t>(states_.size());
    State copy = states_[child];
    copy.length = states_[parent].length + 1;
    copy.first_edge = kNone;
    states_.push_back(copy);
    for (std::uint32_t edge = states_[child].first_edge; edge != kNone; edge = edges_[edge].next) {
        add_edge(clone, edges_[edge].token, edges_[edge].to);
    }
    states_[child].link = clone;
    for (; parent != kNone && target_of(parent, token) == child; parent = states_[parent].link) {
        edges_[slots_[slot_of(parent, token)]].to = clone;
    }
    return clone;
}

void SuffixDrafter::extend(std::uint32_t token) noexcept {
    const auto added = static_cast<std::uint32_t>(states_.size());
    states_.push_back({.length = states_[last_].length + 1, .last_end = static_cast<std::uint32_t>(text_.size())});
    std::uint32_t at = last_;
    last_ = added;
    for (; at != kNone && target_of(at, token) == kNone; at = states_[at].link) {
        add_edge(at, token, added);
    }
    if (at == kNone) {
        states_[added].link = kRoot;
        return;
    }
    const std::uint32_t child = target_of(at, token);
    const bool fits = states_[child].length == states_[at].length + 1;
    const std::uint32_t link = fits ? child : split(at, child, token);
    states_[added].link = link;
}

void SuffixDrafter::feed(std::uint32_t token) noexcept {
    states_[match_].last_end = static_cast<std::uint32_t>(text_.size());
    while (match_ != kRoot && target_of(match_, token) == kNone) {
        match_ = states_[match_].link;
        match_length_ = states_[match_].length;
    }
    const std::uint32_t next = target_of(match_, token);
    if (next != kNone) {
        match_ = next;
        ++match_length_;
    }
    text_.push_back(token);
    extend(token);
    // The state may have been split: the match belongs to the half that holds its length.
    while (match_ != kRoot && match_length_ <= states_[states_[match_].link].length) {
        match_ = states_[match_].link;
    }
}

std::size_t SuffixDrafter::draft(std::span<const std::uint32_t> context, std::span<std::uint32_t> drafted) noexcept {
    if (is_new_) {
        const auto before = std::span(text_).subspan(context_begin_);
        if (before.size() > context.size() || !std::equal(before.begin(), before.end(), context.begin())) {
            context_begin_ = text_.size();
            match_ = kRoot;
            match_length_ = 0;
        }
        is_new_ = false;
    }
    for (std::size_t i = text_.size() - context_begin_; i < context.size() && text_.size() < text_max_; ++i) {
        feed(context[i]);
    }
    const std::size_t end = states_[match_].last_end;
    if (match_length_ < kShortestMatch || text_.size() - context_begin_ != context.size() || end >= text_.size()) {
        return 0;
    }
    for (std::size_t i = 0; i < drafted.size(); ++i) {
        const std::size_t from = end + i;
        drafted[i] = from < text_.size() ? text_[from] : drafted[from - text_.size()];
    }
    return drafted.size();
}

}  // namespace perceptd::generate

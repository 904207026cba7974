// Drafters that know the answer, or nothing: for tests of what a draft may and may not change.
#pragma once

#include <utility>
#include <vector>

#include "generate/drafter.hpp"
#include "sensor/counter_rng.hpp"

namespace perceptd::support {

/// Drafts nothing.
class SilentDrafter final : public generate::Drafter {
public:
    void begin(std::size_t) override {}
    std::size_t draft(std::span<const std::uint32_t>, std::span<std::uint32_t>) noexcept override { return 0; }
};

/// Knows the whole text that will come. Each token is right with a given chance; 0: always wrong, 1: always right.
class ScriptedDrafter final : public generate::Drafter {
public:
    ScriptedDrafter(std::vector<std::uint32_t> text, std::uint32_t vocabulary_size, double right_chance,
                    std::uint64_t seed = 0)
        : text_(std::move(text)), vocabulary_size_(vocabulary_size), right_chance_(right_chance), seed_(seed) {}

    void begin(std::size_t) override {}
    std::size_t draft(std::span<const std::uint32_t> context, std::span<std::uint32_t> drafted) noexcept override {
        for (std::size_t i = 0; i < drafted.size(); ++i) {
            const std::size_t at = context.size() + i;
            const std::uint32_t right = at < text_.size() ? text_[at] : 0;
            const bool is_right = sensor::random_uniform(seed_, draws_++, 0) < right_chance_;
            drafted[i] = is_right ? right : (right + 1) % vocabulary_size_;
        }
        return drafted.size();
    }

private:
    std::vector<std::uint32_t> text_;
    std::uint32_t vocabulary_size_;
    double right_chance_;
    std::uint64_t seed_;
    std::uint64_t draws_ = 0;
};

/// Drafts random ids, some beyond the vocabulary, and any number of them.
class WildDrafter final : public generate::Drafter {
public:
    explicit WildDrafter(std::uint32_t vocabulary_size) : vocabulary_size_(vocabulary_size) {}
    void begin(std::size_t) override {}
    std::size_t draft(std::span<const std::uint32_t>, std::span<std::uint32_t> drafted) noexcept override {
        ++calls_;
        for (std::size_t i = 0; i < drafted.size(); ++i) {
            const auto limit = i % 5 == 4 ? std::uint64_t{1} << 32 : vocabulary_size_;
            drafted[i] = static_cast<std::uint32_t>(sensor::random_bits(5, calls_, i) % limit);
        }
        return sensor::random_bits(6, calls_, 0) % (drafted.size() + 1);
    }

private:
    std::uint32_t vocabulary_size_;
    std::uint64_t calls_ = 0;
};

}  // namespace perceptd::support

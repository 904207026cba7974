// The keys and values of one model: equal pages of 32 positions, who holds them, and finished pages kept for the next
// sequence that begins with the same tokens. Owns the pages' memory. Never lets one client's tokens serve another,
// never gives out more than it has: a sequence's capacity is set aside when it opens, or the opening is refused with
// numbers.
//
// A page is known by a 128-bit hash chained over client, model and all tokens before and in it, and its own 32 tokens
// are compared as well. What a client could gain by a collision is a wrong text of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/huge_buffer.hpp"
#include "engine/kv_pages.hpp"
#include "model/digest.hpp"

namespace perceptd::generate {

using KvClient = std::uint64_t;

struct KvUsage {
    std::size_t capacity_pages = 0;
    std::size_t committed_pages = 0;  ///< set aside for open sequences
    std::size_t held_pages = 0;       ///< in at least one open sequence
    std::size_t kept_pages = 0;       ///< in none, but remembered for their tokens
    std::uint64_t evicted_pages = 0;  ///< forgotten to make room, in all
    std::uint64_t copied_pages = 0;   ///< copied because a sequence wrote where another reads
    std::uint64_t reused_tokens = 0;  ///< not computed again
};

/// One remembered page made room: `tokens` positions would have to be computed again.
struct KvEviction {
    KvClient client = 0;
    std::size_t tokens = 0;
};

class KvSequence;

/// Thread-bound, with its sequences, which must end before it. After construction open() alone allocates.
class KvCache {
public:
    /// Allocates and touches all pages. `model` names the weights. Throws std::system_error when there is no memory.
    KvCache(const engine::KvShape& shape, std::size_t page_count, const model::Digest& model);
    KvCache(const KvCache&) = delete;
    KvCache& operator=(const KvCache&) = delete;

    /// An empty sequence with room for `capacity_tokens`. Throws Error(QuotaExceeded) with limit and used (tokens) when
    /// the pages that are not set aside do not suffice.
    [[nodiscard]] KvSequence open(KvClient client, std::size_t capacity_tokens);
    /// Forgets what is kept of `client`.
    void forget(KvClient client) noexcept;

    [[nodiscard]] KvUsage usage() const noexcept;
    [[nodiscard]] const engine::KvShape& shape() const noexcept { return shape_; }
    /// Called for each page that is evicted, on the thread of the cache, in the middle of a pass: must not throw.
    std::function<void(const KvEviction&)> on_eviction;

private:
    friend class KvSequence;
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    using Tokens = std::span<const std::uint32_t, engine::kPagePositions>;
    struct ChainHash {
        std::uint64_t low = 0;
        std::uint64_t high = 0;
        bool operator==(const ChainHash&) const = default;
    };
    struct Page {
        std::uint32_t references = 0;
        bool is_indexed = false;
        std::uint32_t next_in_bucket = kNone;
        std::uint64_t kept_since = 0;  // order of release; 0: not kept
        KvClient client = 0;
        ChainHash hash;
        std::array<std::uint32_t, engine::kPagePositions> tokens{};
    };

    [[nodiscard]] ChainHash root_of(KvClient client) const noexcept;
    [[nodiscard]] static ChainHash chained(const ChainHash& before, Tokens tokens) noexcept;
    [[nodiscard]] std::uint32_t find(KvClient client, const ChainHash& hash, Tokens tokens) const noexcept;
    void index(std::uint32_t page, KvClient client, const ChainHash& hash, Tokens tokens) noexcept;
    void unindex(std::uint32_t page) noexcept;
    void hold(std::uint32_t page) noexcept;
    void release(std::uint32_t page) noexcept;
    [[nodiscard]] std::uint32_t take() noexcept;
    void copy_page(std::uint32_t from, std::uint32_t to) noexcept;
    [[nodiscard]] std::uint32_t& bucket_of(const ChainHash& hash) noexcept {
        return buckets_[hash.low % buckets_.size()];
    }

    engine::KvShape shape_;
    model::Digest model_;
    engine::HugeBuffer pool_;
    std::vector<Page> pages_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> buckets_;
    KvUsage usage_;
    std::uint64_t releases_ = 0;
};

}  // namespace perceptd::generate

// The cached positions of one sequence: its page table, the tokens that the positions hold, and how it grows, is rolled
// back and begins with pages that an earlier sequence of the same client has filled. Owns its share of the pages; the
// memory is the cache's. Never writes a page that another sequence reads: it copies it first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "generate/headroom.hpp"
#include "generate/kv_cache.hpp"

namespace perceptd::generate {

/// Move-only, made by KvCache::open(), which it must not outlive. Thread-bound. Real-time after its opening: no
/// allocation, no lock; copying a shared page costs its bytes.
class KvSequence {
public:
    ~KvSequence();
    KvSequence(KvSequence&& other) noexcept;
    KvSequence& operator=(KvSequence&&) = delete;

    /// Begins with the pages that hold the first tokens of `tokens`, all but at least the last token, whose logits
    /// somebody must compute. Only while empty. Returns how many positions are there now.
    std::size_t reuse(std::span<const std::uint32_t> tokens) noexcept;
    /// Makes the next `count` positions writable. Full, and nothing is changed, beyond the capacity.
    [[nodiscard]] Status reserve(std::size_t count) noexcept;
    /// The pass over reserved positions is done: they hold `tokens`, finally.
    void append(std::span<const std::uint32_t> tokens) noexcept;
    /// Rolls back to `length` positions; releases the pages beyond.
    void truncate(std::size_t length) noexcept;

    [[nodiscard]] std::size_t length() const noexcept { return tokens_.size(); }
    [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return tokens_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    [[nodiscard]] Headroom headroom() const noexcept { return {tokens_.size(), capacity_}; }
    /// For a pass; valid until the next change.
    [[nodiscard]] engine::KvView view() const noexcept { return {cache_->shape_, cache_->pool_.data(), page_table_}; }

private:
    friend class KvCache;
    KvSequence(KvCache& cache, KvClient client, std::size_t capacity_tokens);
    [[nodiscard]] KvCache::Tokens page_tokens(std::span<const std::uint32_t> tokens, std::size_t page) const noexcept {
        return tokens.subspan(page * engine::kPagePositions).first<engine::kPagePositions>();
    }

    KvCache* cache_;
    KvClient client_;
    std::size_t capacity_;
    std::vector<std::uint32_t> page_table_;
    std::vector<std::uint32_t> tokens_;
    std::vector<KvCache::ChainHash> hashes_;  // after each whole page; [0] is the client's root
};

}  // namespace perceptd::generate

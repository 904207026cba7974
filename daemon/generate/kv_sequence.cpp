// Positions beyond length() inside the last page may hold leftovers of a rolled-back draft; attention never reads them.
#include "generate/kv_sequence.hpp"

#include <algorithm>
#include <utility>

#include "base/contract.hpp"

namespace perceptd::generate {

using engine::kPagePositions;

namespace {

std::size_t pages_for(std::size_t tokens) noexcept {
    return (tokens + kPagePositions - 1) / kPagePositions;
}

}  // namespace

KvSequence::KvSequence(KvCache& cache, KvClient client, std::size_t capacity_tokens)
    : cache_(&cache), client_(client), capacity_(capacity_tokens) {
    page_table_.reserve(pages_for(capacity_));
    tokens_.reserve(capacity_);
    hashes_.reserve(pages_for(capacity_) + 1);
    hashes_.push_back(cache.root_of(client));
    cache.usage_.committed_pages += pages_for(capacity_);
}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      client_(other.client_),
      capacity_(other.capacity_),
      page_table_(std::move(other.page_table_)),
      tokens_(std::move(other.tokens_)),
      hashes_(std::move(other.hashes_)) {}

KvSequence::~KvSequence() {
    if (cache_ != nullptr) {
        truncate(0);
        cache_->usage_.committed_pages -= pages_for(capacity_);
    }
}

std::size_t KvSequence::reuse(std::span<const std::uint32_t> tokens) noexcept {
    PERCEPTD_ASSERT(tokens_.empty());
    const std::size_t limit = std::min(tokens.size(), capacity_);
    while ((page_table_.size() + 1) * kPagePositions <= limit) {
        const auto next = page_tokens(tokens, page_table_.size());
        const KvCache::ChainHash hash = KvCache::chained(hashes_.back(), next);
        const std::uint32_t page = cache_->find(client_, hash, next);
        if (page == KvCache::kNone) {
            break;
        }
        cache_->hold(page);
        page_table_.push_back(page);
        hashes_.push_back(hash);
        tokens_.insert(tokens_.end(), next.begin(), next.end());
    }
    if (!tokens_.empty() && tokens_.size() == tokens.size()) {
        truncate(tokens_.size() - 1);
    }
    cache_->usage_.reused_tokens += tokens_.size();
    return tokens_.size();
}

Status KvSequence::reserve(std::size_t count) noexcept {
    if (count > capacity_ - tokens_.size()) {
        return Status::Full;
    }
    const std::size_t partial = tokens_.size() / kPagePositions;
    if (count > 0 && partial < page_table_.size()) {
        std::uint32_t& page = page_table_[partial];
        if (cache_->pages_[page].references > 1) {
            const std::uint32_t own = cache_->take();
            cache_->copy_page(page, own);
            cache_->release(page);
            page = own;
        } else if (cache_->pages_[page].is_indexed) {
            cache_->unindex(page);  // it will not hold the tokens that it is known for
        }
    }
    while (page_table_.size() < pages_for(tokens_.size() + count)) {
        page_table_.push_back(cache_->take());
    }
    return Status::Ok;
}

void KvSequence::append(std::span<const std::uint32_t> tokens) noexcept {
    PERCEPTD_ASSERT(pages_for(tokens_.size() + tokens.size()) <= page_table_.size());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    while (hashes_.size() * kPagePositions <= tokens_.size()) {
        const std::size_t page = hashes_.size() - 1;
        const auto held = page_tokens(tokens_, page);
        hashes_.push_back(KvCache::chained(hashes_.back(), held));
        cache_->index(page_table_[page], client_, hashes_.back(), held);
    }
}

void KvSequence::truncate(std::size_t length) noexcept {
    PERCEPTD_ASSERT(length <= tokens_.size());
    tokens_.resize(length);
    hashes_.resize(length / kPagePositions + 1);
    // The last page goes first, so that a kept prefix is evicted from its end.
    while (page_table_.size() > pages_for(length)) {
        cache_->release(page_table_.back());
        page_table_.pop_back();
    }
}

}  // namespace perceptd::generate

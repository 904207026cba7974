// Reference counts, a free list, and buckets of indexed pages linked through the pages themselves: nothing is allocated
// once the pool stands. Eviction looks for the page released first; pools have hundreds of pages, not millions.
#include "generate/kv_cache.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/contract.hpp"
#include "base/error.hpp"
#include "generate/kv_sequence.hpp"
#include "sensor/counter_rng.hpp"

namespace perceptd::generate {
namespace {

using engine::kPagePositions;

std::uint64_t word_of(const model::Digest& digest, std::size_t index) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, digest.data() + index * sizeof word, sizeof word);
    return word;
}

}  // namespace

KvCache::KvCache(const engine::KvShape& shape, std::size_t page_count, const model::Digest& model)
    : shape_(shape), model_(model), pool_(shape.page_bytes() * page_count), pages_(page_count) {
    if (page_count == 0 || page_count >= kNone) {
        throw Error(ErrorCode::InvalidArgument,
                    "cache: " + std::to_string(page_count) + " pages; at least 1 is needed to hold a token");
    }
    pool_.prefault();
    free_.reserve(page_count);
    for (std::size_t page = page_count; page-- > 0;) {
        free_.push_back(static_cast<std::uint32_t>(page));
    }
    buckets_.assign(2 * page_count, kNone);
    usage_.capacity_pages = page_count;
}

KvSequence KvCache::open(KvClient client, std::size_t capacity_tokens) {
    const std::size_t free_pages = usage_.capacity_pages - usage_.committed_pages;
    if (capacity_tokens > free_pages * kPagePositions) {
        Error error(ErrorCode::QuotaExceeded,
                    "a sequence of " + std::to_string(capacity_tokens) +
                        " tokens does not fit: " + std::to_string(free_pages * kPagePositions) + " of " +
                        std::to_string(usage_.capacity_pages * kPagePositions) +
                        " are not set aside for open sequences; ask for fewer or end another");
        error.limit = usage_.capacity_pages * kPagePositions;
        error.used = usage_.committed_pages * kPagePositions;
        throw error;
    }
    return {*this, client, capacity_tokens};
}

void KvCache::forget(KvClient client) noexcept {
    for (std::uint32_t page = 0; page < pages_.size(); ++page) {
        if (pages_[page].is_indexed && pages_[page].client == client) {
            unindex(page);
        }
    }
}

KvUsage KvCache::usage() const noexcept {
    KvUsage usage = usage_;
    for (const Page& page : pages_) {
        usage.held_pages += page.references > 0 ? 1 : 0;
        usage.kept_pages += page.kept_since != 0 ? 1 : 0;
    }
    return usage;
}

KvCache::ChainHash KvCache::root_of(KvClient client) const noexcept {
    return {sensor::random_bits(word_of(model_, 0), client, 0), sensor::random_bits(word_of(model_, 1), client, 1)};
}

KvCache::ChainHash KvCache::chained(const ChainHash& before, Tokens tokens) noexcept {
    ChainHash hash = before;
    for (std::uint64_t i = 0; i < tokens.size(); ++i) {
        hash.low = sensor::random_bits(hash.low, tokens[i], i);
        hash.high = sensor::random_bits(hash.high, tokens[i], ~i);
    }
    return hash;
}

std::uint32_t KvCache::find(KvClient client, const ChainHash& hash, Tokens tokens) const noexcept {
    std::uint32_t page = buckets_[hash.low % buckets_.size()];
    while (page != kNone && !(pages_[page].hash == hash && pages_[page].client == client &&
                              std::equal(tokens.begin(), tokens.end(), pages_[page].tokens.begin()))) {
        page = pages_[page].next_in_bucket;
    }
    return page;
}

void KvCache::index(std::uint32_t page, KvClient client, const ChainHash& hash, Tokens tokens) noexcept {
    if (pages_[page].is_indexed || find(client, hash, tokens) != kNone) {
        return;
    }
    Page& entry = pages_[page];
    entry.is_indexed = true;
    entry.client = client;
    entry.hash = hash;
    std::copy(tokens.begin(), tokens.end(), entry.tokens.begin());
    std::uint32_t& bucket = bucket_of(hash);
    entry.next_in_bucket = bucket;
    bucket = page;
}

void KvCache::unindex(std::uint32_t page) noexcept {
    Page& entry = pages_[page];
    std::uint32_t* link = &bucket_of(entry.hash);
    while (*link != page) {
        link = &pages_[*link].next_in_bucket;
    }
    *link = entry.next_in_bucket;
    entry.is_indexed = false;
    if (entry.kept_since != 0) {
        entry.kept_since = 0;
        free_.push_back(page);
    }
}

void KvCache::hold(std::uint32_t page) noexcept {
    ++pages_[page].references;
    pages_[page].kept_since = 0;
}

void KvCache::release(std::uint32_t page) noexcept {
    Page& entry = pages_[page];
    PERCEPTD_ASSERT(entry.references > 0);
    if (--entry.references > 0) {
        return;
    }
    if (entry.is_indexed) {
        entry.kept_since = ++releases_;
    } else {
        free_.push_back(page);
    }
}

std::uint32_t KvCache::take() noexcept {
    if (free_.empty()) {
        std::uint32_t oldest = kNone;
        for (std::uint32_t page = 0; page < pages_.size(); ++page) {
            if (pages_[page].kept_since != 0 &&
                (oldest == kNone || pages_[page].kept_since < pages_[oldest].kept_since)) {
                oldest = page;
            }
        }
        // What is set aside never exceeds the pool, so a page that nobody holds exists.
        PERCEPTD_ASSERT(oldest != kNone);
        ++usage_.evicted_pages;
        const KvEviction eviction{pages_[oldest].client, kPagePositions};
        unindex(oldest);
        if (on_eviction) {
            on_eviction(eviction);
        }
    }
    const std::uint32_t page = free_.back();
    free_.pop_back();
    hold(page);
    return page;
}

void KvCache::copy_page(std::uint32_t from, std::uint32_t to) noexcept {
    std::memcpy(pool_.data() + to * shape_.page_bytes(), pool_.data() + from * shape_.page_bytes(),
                shape_.page_bytes());
    ++usage_.copied_pages;
}

}  // namespace perceptd::generate

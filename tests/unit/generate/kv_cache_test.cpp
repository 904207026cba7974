#include "generate/kv_cache.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "base/hot_path.hpp"
#include "generate/kv_sequence.hpp"
#include "sensor/counter_rng.hpp"

namespace perceptd::generate {
namespace {

constexpr engine::KvShape kShape{.layers = 1, .kv_heads = 1, .head_dimension = 32, .format = engine::KvFormat::F32};

std::vector<std::uint32_t> ids(std::size_t count, std::uint32_t first = 0) {
    std::vector<std::uint32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

/// A stand-in for the model: what a position's key row holds depends on all tokens up to it.
float content(const std::vector<std::uint32_t>& tokens, std::size_t position) {
    float value = 1;
    for (std::size_t i = 0; i <= position; ++i) {
        value = value * 0.75F + static_cast<float>(tokens[i] % 1000);
    }
    return value;
}

/// Computes positions [length, tokens.size()) and takes them in.
void compute(KvSequence& sequence, const std::vector<std::uint32_t>& tokens) {
    const std::size_t first = sequence.length();
    REQUIRE(sequence.reserve(tokens.size() - first) == Status::Ok);
    for (std::size_t position = first; position < tokens.size(); ++position) {
        const float value = content(tokens, position);
        std::memcpy(sequence.view().key_row(0, 0, position), &value, sizeof value);
    }
    sequence.append(std::span(tokens).subspan(first));
}

bool holds(const KvSequence& sequence, const std::vector<std::uint32_t>& tokens) {
    if (sequence.length() != tokens.size()) {
        return false;
    }
    for (std::size_t position = 0; position < tokens.size(); ++position) {
        float value = 0;
        std::memcpy(&value, sequence.view().key_row(0, 0, position), sizeof value);
        if (value != content(tokens, position)) {
            return false;
        }
    }
    return true;
}

}  // namespace

TEST_CASE("a second sequence begins with the pages of the first, inside one client") {
    KvCache cache(kShape, 20, {});
    const auto tokens = ids(100);
    {
        KvSequence first = cache.open(1, 120);
        CHECK(first.reuse(tokens) == 0);
        compute(first, tokens);
        KvSequence beside = cache.open(1, 120);
        CHECK(beside.reuse(tokens) == 96);  // while the first still runs
        CHECK(cache.usage().held_pages == 4);
    }
    CHECK(cache.usage().kept_pages == 3);
    KvSequence other_client = cache.open(2, 120);
    CHECK(other_client.reuse(tokens) == 0);
    KvSequence again = cache.open(1, 120);
    auto longer = ids(110);
    longer[70] = 9999;
    CHECK(again.reuse(longer) == 64);
    compute(again, longer);
    CHECK(holds(again, longer));
}

TEST_CASE("other models do not share, and a forgotten client has nothing left") {
    model::Digest other_model{};
    other_model[3] = 1;
    KvCache cache(kShape, 8, {});
    KvCache other(kShape, 8, other_model);
    const auto tokens = ids(64);
    for (KvCache* one : {&cache, &other}) {
        KvSequence sequence = one->open(1, 64);
        compute(sequence, tokens);
    }
    CHECK(cache.usage().kept_pages == 2);
    cache.forget(2);
    CHECK(cache.usage().kept_pages == 2);
    cache.forget(1);
    CHECK(cache.usage().kept_pages == 0);
    CHECK(cache.open(1, 64).reuse(tokens) == 0);
    CHECK(other.open(1, 64).reuse(tokens) == 63);
}

TEST_CASE("a shared page is copied before it is written") {
    KvCache cache(kShape, 12, {});
    const auto tokens = ids(64);
    KvSequence first = cache.open(1, 100);
    compute(first, tokens);
    KvSequence second = cache.open(1, 100);
    CHECK(second.reuse(tokens) == 63);  // the last token's logits must be computed
    CHECK(cache.usage().held_pages == 2);
    auto changed = tokens;
    changed[63] = 5000;
    compute(second, changed);
    CHECK(cache.usage().copied_pages == 1);
    CHECK(holds(first, tokens));
    CHECK(holds(second, changed));
    // The first rolls back into a page that the second does not share: no copy, but the page is no longer known.
    first.truncate(40);
    auto rewritten = ids(64);
    rewritten[50] = 77;
    compute(first, rewritten);
    CHECK(cache.usage().copied_pages == 1);
    CHECK(holds(first, rewritten));
    KvSequence third = cache.open(1, 50);
    CHECK(third.reuse(tokens) == 32);
}

TEST_CASE("room is refused with exact numbers, and never taken twice") {
    KvCache cache(kShape, 4, {});
    KvSequence first = cache.open(1, 70);  // 3 pages
    CHECK(cache.usage().committed_pages == 3);
    try {
        (void)cache.open(1, 33);
        FAIL("opened");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::QuotaExceeded);
        CHECK(error.limit == 128U);
        CHECK(error.used == 96U);
    }
    KvSequence second = cache.open(1, 32);
    CHECK(first.reserve(71) == Status::Full);
    CHECK(first.length() == 0);
    compute(first, ids(70));
    CHECK(first.reserve(1) == Status::Full);
    CHECK(holds(first, ids(70)));
    compute(second, ids(32, 500));
    CHECK(cache.usage().held_pages == 4);
}

TEST_CASE("kept pages make room from the end of the oldest, and that is announced") {
    KvCache cache(kShape, 4, {});
    std::vector<KvEviction> evictions;
    evictions.reserve(8);
    cache.on_eviction = [&](const KvEviction& eviction) { evictions.push_back(eviction); };
    const auto tokens = ids(96);
    {
        KvSequence sequence = cache.open(7, 128);
        compute(sequence, tokens);
    }
    CHECK(cache.usage().kept_pages == 3);
    KvSequence other = cache.open(8, 64);
    compute(other, ids(64, 1000));
    REQUIRE(evictions.size() == 1);
    CHECK(evictions[0].client == 7);
    CHECK(evictions[0].tokens == 32);
    CHECK(cache.usage().evicted_pages == 1);
    KvSequence again = cache.open(7, 64);
    CHECK(again.reuse(tokens) == 64);  // the first two pages are still there
    CHECK(cache.usage().evicted_pages == 1);
}

TEST_CASE("any history of growing, rolling back, closing and reusing leaves each sequence its own content") {
    KvCache cache(kShape, 24, {});
    std::vector<std::optional<KvSequence>> open(4);
    std::vector<std::vector<std::uint32_t>> wanted(4);
    std::uint64_t step = 0;
    const auto pick = [&](std::uint64_t below) { return sensor::random_bits(3, 0, ++step) % below; };
    std::uint64_t reused = 0;
    for (int round = 0; round < 4000; ++round) {
        const std::size_t i = pick(4);
        if (!open[i]) {
            open[i].emplace(cache.open(i % 2, 160));
            wanted[i] = ids(1 + pick(150));
            if (pick(2) == 0) {
                wanted[i][pick(wanted[i].size())] += 3000;
            }
            reused += open[i]->reuse(wanted[i]);
        } else if (pick(6) == 0) {
            open[i].reset();
            continue;
        } else {
            const std::size_t keep = pick(open[i]->length() + 1);
            open[i]->truncate(keep);
            wanted[i].resize(keep);
            const std::size_t more = 1 + pick(160 - keep);
            for (std::size_t n = 0; n < more; ++n) {
                wanted[i].push_back(static_cast<std::uint32_t>(wanted[i].size() + (pick(40) == 0 ? 4000 : 0)));
            }
        }
        compute(*open[i], wanted[i]);
        for (std::size_t j = 0; j < open.size(); ++j) {
            if (open[j]) {
                REQUIRE(holds(*open[j], wanted[j]));
            }
        }
        const KvUsage usage = cache.usage();
        REQUIRE(usage.held_pages + usage.kept_pages <= usage.capacity_pages);
        REQUIRE(usage.held_pages <= usage.committed_pages);
    }
    CHECK(reused > 1000);
    CHECK(cache.usage().copied_pages > 10);
    open.clear();
    CHECK(cache.usage().committed_pages == 0);
    CHECK(cache.usage().held_pages == 0);
}

TEST_CASE("growing and rolling back allocate nothing") {
    KvCache cache(kShape, 8, {});
    KvSequence sequence = cache.open(1, 200);
    const auto tokens = ids(150);
    const hot_path::Scope hot;
    const std::uint64_t before = hot_path::allocation_count();
    REQUIRE(sequence.reserve(150) == Status::Ok);
    sequence.append(tokens);
    sequence.truncate(20);
    REQUIRE(sequence.reserve(100) == Status::Ok);
    sequence.append(std::span(tokens).first(100));
    CHECK(hot_path::allocation_count() == before);
}

TEST_CASE("headroom: each level is told once when it is reached; an unknown capacity has no remainder") {
    HeadroomWatch watch;
    CHECK_FALSE(watch.observe({74, 100}));
    CHECK(watch.observe({75, 100}) == HeadroomLevel::Soft);
    CHECK_FALSE(watch.observe({89, 100}));
    CHECK(watch.observe({90, 100}) == HeadroomLevel::Hard);
    CHECK_FALSE(watch.observe({100, 100}));
    CHECK_FALSE(watch.observe({80, 100}));
    CHECK(watch.observe({95, 100}) == HeadroomLevel::Hard);
    CHECK(Headroom{30, 100}.remaining_tokens() == 70U);
    CHECK(Headroom{130, 100}.remaining_tokens() == 0U);
    CHECK_FALSE(Headroom{30, std::nullopt}.remaining_tokens());
    CHECK(Headroom{30, std::nullopt}.level() == HeadroomLevel::Normal);
}

}  // namespace perceptd::generate

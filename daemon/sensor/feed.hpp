// A source whose samples come from another process (a provider) through struct percept_feed and slots it fills.
// Owns the ring's memory, the doorbell, the capture thread and the leases of the slots that are with the provider.
// Never trusts a word of the ring, never waits for the provider, never follows anything it wrote without a check.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "arena/lease.hpp"
#include "arena/memfd_buffer.hpp"
#include "base/rt_thread.hpp"
#include "base/unique_fd.hpp"
#include "percept_layout.h"
#include "sensor/feed_check.hpp"
#include "sensor/source.hpp"

namespace perceptd::sensor {

/// What the provider is told when its kinds are wanted.
struct FeedRun {
    std::array<bool, kKindCount> is_on{};
    std::uint32_t run = 0;
    std::int64_t hub_start_ns = 0;
};

/// Threads: as Source. Real-time (capture thread): no allocation, no lock; its only calls are poll and non-blocking
/// socket and eventfd operations.
class FeedSource final : public Source {
public:
    /// Runs inside start(), on the main thread.
    using StartHandler = std::function<void(const FeedRun&)>;

    /// `offer` has passed check_offer(). The arenas hold nothing but this source's samples, are null for what is not
    /// offered, and outlive it. Throws std::system_error.
    FeedSource(Offer offer, arena::Arena* camera_arena, arena::Arena* audio_arena, int fifo_priority,
               StartHandler on_start);
    ~FeedSource() override;

    /// For the provider: the ring, writable until seal(), and its end of the doorbell (once).
    [[nodiscard]] UniqueFd ring_fd() const { return ring_->provider_fd(); }
    [[nodiscard]] UniqueFd take_doorbell() noexcept { return std::move(provider_bell_); }
    /// Nobody can map the ring writable any more; mappings made before stay.
    void seal() { ring_->seal(); }

    [[nodiscard]] const Offer& offer() const noexcept override { return offer_; }
    /// Tells the provider to deliver; samples of an earlier start are void.
    void start(const Sink& sink) override;
    void stop() noexcept override;
    [[nodiscard]] const StreamCounters& counters(Kind kind) const noexcept override {
        return counters_[index_of(kind)];
    }
    [[nodiscard]] std::uint32_t lent_slot_count(Kind kind) const noexcept override {
        return lent_count_[index_of(kind)].load(std::memory_order_relaxed);
    }
    [[nodiscard]] bool is_running() const noexcept { return thread_ != nullptr; }
    /// Readable once the provider has broken the contract beyond use: nothing is taken from it any more.
    [[nodiscard]] int fault_fd() const noexcept { return fault_fd_.borrow(); }

private:
    struct Stream {
        arena::Arena* arena = nullptr;
        std::array<arena::Lease, PERCEPT_ARENA_SLOTS_MAX> with_provider;  // from run to run
        std::uint64_t free_tail = 0;
        bool is_on = false;
        bool has_gap = false;
        StreamCheck check;
    };

    [[nodiscard]] percept_feed& feed() noexcept;
    void capture(const std::atomic<bool>& stop) noexcept;
    void wait() noexcept;
    bool lend_slots() noexcept;
    void lend(std::size_t index, std::uint32_t slot_index) noexcept;
    void take_records(const std::atomic<bool>& stop) noexcept;
    void take(const percept_feed_record& record, const std::atomic<bool>& stop) noexcept;
    void take_end_or_mark(Kind kind, const percept_feed_record& record, const std::atomic<bool>& stop) noexcept;
    [[nodiscard]] bool is_payload_good(Kind kind, const percept_feed_record& record) const noexcept;
    void give_back(const percept_feed_record& record) noexcept;
    void refuse(std::size_t index, const percept_feed_record& record) noexcept;
    [[nodiscard]] bool push(const Sample& sample, bool must_wait, const std::atomic<bool>& stop) noexcept;
    void ring_bell() noexcept;

    Offer offer_;
    int fifo_priority_;
    StartHandler on_start_;
    std::unique_ptr<arena::MemfdBuffer> ring_;
    UniqueFd daemon_bell_;
    UniqueFd provider_bell_;
    UniqueFd stop_fd_;
    UniqueFd fault_fd_;
    std::array<StreamCounters, kKindCount> counters_;
    std::array<std::atomic<std::uint32_t>, kKindCount> lent_count_{};
    std::array<Stream, kKindCount> streams_;
    Sink sink_;
    std::uint64_t record_head_ = 0;
    std::uint32_t run_ = 0;
    std::int64_t newest_hub_ns_ = 0;  ///< of all streams and runs
    std::uint64_t refused_in_run_ = 0;
    bool bell_is_open_ = true;
    bool is_broken_ = false;
    std::unique_ptr<RtThread> thread_;
};

}  // namespace perceptd::sensor

#include "sensor/feed.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/event_fd.hpp"

namespace perceptd::sensor {
namespace {

constexpr int kLongestWaitMs = 20;  // bounds what a provider that rings no bell can delay
constexpr std::int64_t kQueueNapNs = 200 * kNsPerUs;
constexpr std::uint32_t kKnownFlags = PERCEPT_FEED_GAP | PERCEPT_FEED_END | PERCEPT_FEED_MARK | PERCEPT_FEED_DAMAGED;
constexpr std::uint64_t kRefusedMax = 4096;  // per run; more is a broken provider

/// Known ones, and DAMAGED only as a word about END.
constexpr bool are_flags_good(std::uint32_t flags) noexcept {
    return (flags & ~kKnownFlags) == 0 && (flags & (PERCEPT_FEED_END | PERCEPT_FEED_DAMAGED)) != PERCEPT_FEED_DAMAGED;
}

}  // namespace

FeedSource::FeedSource(Offer offer, arena::Arena* camera_arena, arena::Arena* audio_arena, int fifo_priority,
                       StartHandler on_start)
    : offer_(std::move(offer)),
      fifo_priority_(fifo_priority),
      on_start_(std::move(on_start)),
      ring_(std::make_unique<arena::MemfdBuffer>(sizeof(percept_feed), arena::Writer::Provider, "feed")),
      stop_fd_(make_event()),
      fault_fd_(make_event()) {
    streams_[index_of(Kind::Camera)].arena = camera_arena;
    streams_[index_of(Kind::Microphone)].arena = audio_arena;
    // A socket and not an eventfd: whether an eventfd's write may block belongs to the open file, which the provider
    // shares; on a socket MSG_DONTWAIT belongs to the call.
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        throw_errno("socketpair", "doorbell");
    }
    daemon_bell_.reset(ends[0]);
    provider_bell_.reset(ends[1]);
    feed().magic = PERCEPT_FEED_MAGIC;
    feed().version = PERCEPT_LAYOUT_VERSION;
    ring_->mapping().prefault();
}

FeedSource::~FeedSource() {
    stop();
}

percept_feed& FeedSource::feed() noexcept {
    return *std::launder(reinterpret_cast<percept_feed*>(ring_->mapping().data()));
}

void FeedSource::start(const Sink& sink) {
    stop();
    const arena::Arena* const camera = streams_[index_of(Kind::Camera)].arena;
    const arena::Arena* const audio = streams_[index_of(Kind::Microphone)].arena;
    if (sink.queue == nullptr || (sink.camera_arena != nullptr && sink.camera_arena != camera) ||
        (sink.audio_arena != nullptr && sink.audio_arena != audio) || (sink.imu_on && !offer_.imu)) {
        throw Error(ErrorCode::SensorUnavailable, offer_.origin + ": a sensor was asked for that it does not offer");
    }
    sink_ = sink;
    const std::array<bool, kKindCount> is_on{sink.camera_arena != nullptr, sink.audio_arena != nullptr, sink.imu_on};
    for (std::size_t i = 0; i < kKindCount; ++i) {
        streams_[i].is_on = is_on[i];
        streams_[i].has_gap = false;
        streams_[i].check = {};
        counters_[i].reset();
    }
    clear_event(stop_fd_.borrow());
    refused_in_run_ = 0;
    ++run_;
    newest_hub_ns_ = std::max(newest_hub_ns_ + 1, monotonic_ns());
    const FeedRun run{.is_on = is_on, .run = run_, .hub_start_ns = newest_hub_ns_};
    thread_ = std::make_unique<RtThread>(
        RtThreadOptions{.name = "percept-feed", .fifo_priority = fifo_priority_},
        [this](const std::atomic<bool>& stop_flag) { capture(stop_flag); },
        [this] { signal_event(stop_fd_.borrow()); });
    if (on_start_) {
        on_start_(run);
    }
}

void FeedSource::stop() noexcept {
    thread_.reset();
}

void FeedSource::capture(const std::atomic<bool>& stop) noexcept {
    while (!stop.load(std::memory_order_acquire)) {
        if (!is_broken_) {
            static_cast<void>(lend_slots());
            take_records(stop);
        }
        wait();
    }
}

void FeedSource::wait() noexcept {
    arena::Arena* const camera = streams_[index_of(Kind::Camera)].arena;
    arena::Arena* const audio = streams_[index_of(Kind::Microphone)].arena;
    std::array<pollfd, 4> fds{{{stop_fd_.borrow(), POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}}};
    if (!is_broken_) {
        for (arena::Arena* const arena : {camera, audio}) {
            if (arena != nullptr) {
                arena->announce_waiting();
            }
        }
        if (lend_slots()) {  // freed between the last look and the announcement
            return;
        }
        fds[1].fd = bell_is_open_ ? daemon_bell_.borrow() : -1;
        fds[2].fd = camera != nullptr ? camera->release_fd() : -1;
        fds[3].fd = audio != nullptr ? audio->release_fd() : -1;
    }
    if (::poll(fds.data(), fds.size(), kLongestWaitMs) <= 0) {
        return;
    }
    if (fds[1].revents != 0) {
        std::array<char, 256> rings;
        const ssize_t size = ::recv(daemon_bell_.borrow(), rings.data(), rings.size(), MSG_DONTWAIT);
        if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
            bell_is_open_ = false;  // the channel tells when the provider is gone
        }
    }
    for (std::size_t i = 2; i < fds.size(); ++i) {
        if (fds[i].revents != 0) {
            clear_event(fds[i].fd);
        }
    }
}

void FeedSource::ring_bell() noexcept {
    static_cast<void>(!::send(daemon_bell_.borrow(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

bool FeedSource::lend_slots() noexcept {
    bool has_lent = false;
    for (std::size_t i = 0; i < kKindCount; ++i) {
        Stream& stream = streams_[i];
        while (stream.is_on && stream.arena != nullptr) {
            arena::Lease lease = stream.arena->acquire();
            if (!lease) {
                break;
            }
            const std::uint32_t slot_index = lease.ref().slot_index;
            stream.with_provider[slot_index] = std::move(lease);
            lent_count_[i].fetch_add(1, std::memory_order_relaxed);
            lend(i, slot_index);
            has_lent = true;
        }
    }
    if (has_lent) {
        ring_bell();
    }
    return has_lent;
}

void FeedSource::lend(std::size_t index, std::uint32_t slot_index) noexcept {
    // The ring has room for every slot there can be, so an honest provider's unread entries are never overwritten.
    Stream& stream = streams_[index];
    std::uint32_t& entry = feed().free_slots[index][stream.free_tail % PERCEPT_FEED_FREE_SLOTS];
    std::atomic_ref<std::uint32_t>(entry).store(slot_index, std::memory_order_relaxed);
    ++stream.free_tail;
    std::atomic_ref<std::uint64_t>(feed().free_tail[index]).store(stream.free_tail, std::memory_order_release);
}

void FeedSource::take_records(const std::atomic<bool>& stop) noexcept {
    const std::uint64_t tail = std::atomic_ref<std::uint64_t>(feed().record_tail).load(std::memory_order_acquire);
    if (tail - record_head_ > PERCEPT_FEED_RING_RECORDS) {
        record_head_ = tail;  // more than the ring holds: nothing in it can be believed
        refuse(index_of(Kind::Camera), {});
    }
    const bool has_taken = record_head_ != tail;
    while (record_head_ != tail && !stop.load(std::memory_order_acquire) && !is_broken_) {
        percept_feed_record record;
        std::memcpy(&record, &feed().records[record_head_ % PERCEPT_FEED_RING_RECORDS], sizeof(record));
        ++record_head_;
        take(record, stop);
    }
    std::atomic_ref<std::uint64_t>(feed().record_head).store(record_head_, std::memory_order_release);
    if (has_taken) {
        ring_bell();  // it may wait for room
    }
}

void FeedSource::take(const percept_feed_record& record, const std::atomic<bool>& stop) noexcept {
    if (record.run != run_) {
        give_back(record);  // sent before the provider saw this start
        return;
    }
    const std::size_t index = std::size_t{record.stream} - 1;
    if (record.stream == 0 || index >= kKindCount || !streams_[index].is_on || streams_[index].check.has_ended() ||
        !are_flags_good(record.flags)) {
        refuse(index, record);
        return;
    }
    const auto kind = static_cast<Kind>(record.stream);
    Stream& stream = streams_[index];
    if ((record.flags & (PERCEPT_FEED_END | PERCEPT_FEED_MARK)) != 0) {
        take_end_or_mark(kind, record, stop);
        return;
    }
    const StampLimits limits{offer_.is_live, monotonic_ns(), newest_hub_ns_};
    if (!is_payload_good(kind, record) || !stream.check.accept(record, limits)) {
        refuse(index, record);
        stream.has_gap = true;
        return;
    }
    newest_hub_ns_ = std::max(newest_hub_ns_, record.hub_ns);
    StreamCounters& counters = counters_[index];
    const bool is_after_gap = stream.has_gap || stream.check.has_jumped() || (record.flags & PERCEPT_FEED_GAP) != 0;
    Sample sample{.kind = kind, .flags = is_after_gap ? kGap : 0U, .imu_flags = record.imu_flags};
    sample.sensor_ns = record.sensor_ns;
    sample.hub_ns = record.hub_ns;
    sample.sequence = record.sequence;
    arena::Lease lease;
    if (kind == Kind::Imu) {
        std::copy_n(record.accel_mps2, 3, sample.accel_mps2.begin());
        std::copy_n(record.gyro_radps, 3, sample.gyro_radps.begin());
    } else {
        lease = std::move(stream.with_provider[record.slot_index]);
        lent_count_[index].fetch_sub(1, std::memory_order_relaxed);
        lease.publish();
        sample.slot = lease.ref();
        sample.bytes_used = record.bytes_used;
    }
    if (!push(sample, !offer_.is_live, stop)) {
        counters.dropped_queue_full_count.fetch_add(1, std::memory_order_relaxed);
        stream.has_gap = true;
        return;  // the lease ends here; the slot is lent again
    }
    if (lease) {
        static_cast<void>(lease.detach());  // the count now travels with the sample
    }
    stream.has_gap = false;
    counters.gap_count.fetch_add(is_after_gap ? 1 : 0, std::memory_order_relaxed);
    counters.delivered_count.fetch_add(1, std::memory_order_relaxed);
    counters.last_at_ns.store(sample.hub_ns, std::memory_order_relaxed);
}

void FeedSource::take_end_or_mark(Kind kind, const percept_feed_record& record,
                                  const std::atomic<bool>& stop) noexcept {
    Stream& stream = streams_[index_of(kind)];
    if (!stream.check.accept_time(record.hub_ns, {offer_.is_live, monotonic_ns(), newest_hub_ns_})) {
        refuse(index_of(kind), {});
        return;
    }
    newest_hub_ns_ = std::max(newest_hub_ns_, record.hub_ns);
    const bool is_end = (record.flags & PERCEPT_FEED_END) != 0;
    if (is_end) {
        counters_[index_of(kind)].ended_early.store((record.flags & PERCEPT_FEED_DAMAGED) != 0,
                                                    std::memory_order_relaxed);
        stream.check.end();
    }
    // An end is never lost; a mark may be.
    static_cast<void>(
        push({.kind = kind, .flags = is_end ? kEnd : kMark, .hub_ns = record.hub_ns}, is_end || !offer_.is_live, stop));
}

bool FeedSource::is_payload_good(Kind kind, const percept_feed_record& record) const noexcept {
    if (kind == Kind::Imu) {
        return is_motion_good(record);
    }
    const Stream& stream = streams_[index_of(kind)];
    if (record.slot_index >= stream.arena->slot_count() || !stream.with_provider[record.slot_index]) {
        return false;  // not a slot, or not the provider's: it was handed in before
    }
    return kind == Kind::Camera
               ? is_frame_good(record.bytes_used, *offer_.camera)
               : is_sound_good(stream.arena->slot(record.slot_index), record.bytes_used, *offer_.audio);
}

void FeedSource::give_back(const percept_feed_record& record) noexcept {
    const std::size_t index = std::size_t{record.stream} - 1;
    if (record.stream != 0 && index < kKindCount && streams_[index].arena != nullptr &&
        (record.flags & (PERCEPT_FEED_END | PERCEPT_FEED_MARK)) == 0 &&
        record.slot_index < streams_[index].arena->slot_count() && streams_[index].with_provider[record.slot_index]) {
        lend(index, record.slot_index);
    }
}

void FeedSource::refuse(std::size_t index, const percept_feed_record& record) noexcept {
    counters_[index < kKindCount ? index : 0].invalid_count.fetch_add(1, std::memory_order_relaxed);
    give_back(record);
    if (++refused_in_run_ > kRefusedMax) {
        is_broken_ = true;
        signal_event(fault_fd_.borrow());
    }
}

bool FeedSource::push(const Sample& sample, bool must_wait, const std::atomic<bool>& stop) noexcept {
    while (sink_.queue->push(sample) != Status::Ok) {
        if (!must_wait || stop.load(std::memory_order_acquire)) {
            return false;
        }
        const timespec nap{.tv_sec = 0, .tv_nsec = kQueueNapNs};
        ::clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
    }
    return true;
}

}  // namespace perceptd::sensor

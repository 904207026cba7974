// The provider's side of a feed for tests: as honest or as hostile as the test wants.
// Owns its own mappings, made from descriptors as a provider gets them.
// Never checks: the tests do.
#pragma once

#include <sys/eventfd.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "arena/arena.hpp"
#include "arena/heap.hpp"
#include "arena/lease.hpp"
#include "base/clock.hpp"
#include "base/mapped_region.hpp"
#include "sensor/feed.hpp"
#include "sensor/synthetic.hpp"

namespace perceptd::sensor::test {

inline Offer test_offer(bool is_live) {
    Offer offer;
    offer.origin = "test";
    offer.is_live = is_live;
    offer.stamp_kind.fill(StampKind::Identity);
    offer.camera = CameraFormat{64, 48, 64, 30};
    offer.audio = AudioFormat{16'000, 1, 160};
    offer.imu = ImuFormat{200};
    return offer;
}

/// A started feed with eight slots a kind, its queue, and the provider's mappings.
struct FeedStage {
    std::unique_ptr<arena::Heap> heap = arena::make_heap("memfd");
    Offer offer;
    arena::Arena camera{*heap, {"camera", 8, camera_slot_bytes(*offer.camera), arena::Writer::Provider}};
    arena::Arena audio{*heap, {"audio", 8, audio_slot_bytes(*offer.audio), arena::Writer::Provider}};
    UniqueFd wake_fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    SampleQueue queue{wake_fd.borrow()};
    FeedRun run;
    std::unique_ptr<FeedSource> source;
    UniqueFd bell;
    MappedRegion ring;
    MappedRegion camera_slots;
    MappedRegion audio_slots;
    std::array<std::uint64_t, 2> free_head{};
    std::uint64_t tail = 0;

    explicit FeedStage(bool is_live = false) : offer(test_offer(is_live)) {
        source = std::make_unique<FeedSource>(offer, &camera, &audio, 0, [this](const FeedRun& told) { run = told; });
        ring = MappedRegion(source->ring_fd().borrow(), sizeof(percept_feed), MapAccess::ReadWrite);
        camera_slots =
            MappedRegion(camera.provider_fd().borrow(), camera.slot_stride_bytes() * 8, MapAccess::ReadWrite);
        audio_slots = MappedRegion(audio.provider_fd().borrow(), audio.slot_stride_bytes() * 8, MapAccess::ReadWrite);
        bell = source->take_doorbell();
        camera.seal();
        audio.seal();
        source->seal();
        start();
    }
    ~FeedStage() {
        source->stop();
        Sample sample;
        while (queue.pop(sample)) {
            release(sample);
        }
        source.reset();
        CHECK(camera.free_count() == 8);
        CHECK(audio.free_count() == 8);
    }

    void start() { source->start({&camera, &audio, true, &queue}); }
    percept_feed& feed() { return *reinterpret_cast<percept_feed*>(ring.data()); }

    /// A slot index from the free ring within `patience`.
    std::optional<std::uint32_t> take_slot(Kind kind, std::chrono::milliseconds patience = std::chrono::seconds(10)) {
        const std::size_t index = index_of(kind);
        const auto end = std::chrono::steady_clock::now() + patience;
        do {
            if (std::atomic_ref(feed().free_tail[index]).load() != free_head[index]) {
                return feed().free_slots[index][free_head[index]++ % PERCEPT_FEED_FREE_SLOTS];
            }
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        } while (std::chrono::steady_clock::now() < end);
        return std::nullopt;
    }
    percept_feed_record record(Kind kind, std::uint64_t sequence) {
        percept_feed_record result{};
        result.stream = static_cast<std::uint32_t>(kind);
        result.run = run.run;
        result.sequence = sequence;
        result.sensor_ns = static_cast<std::int64_t>(sequence) * 1000 + 1;
        result.hub_ns = run.hub_start_ns + result.sensor_ns;
        result.imu_flags = kind == Kind::Imu ? std::uint32_t{PERCEPT_IMU_ACCEL} : 0U;
        return result;
    }
    /// A good record with a filled slot.
    percept_feed_record filled(Kind kind, std::uint64_t sequence) {
        percept_feed_record result = record(kind, sequence);
        if (kind == Kind::Imu) {
            return result;
        }
        const auto slot_index = take_slot(kind);
        REQUIRE(slot_index);
        result.slot_index = *slot_index;
        if (kind == Kind::Camera) {
            result.bytes_used = static_cast<std::uint32_t>(camera_slot_bytes(*offer.camera));
            return result;
        }
        percept_audio_block block{16'000, 1, 160, 160, sequence * 160, sequence * 160, 64, 384};
        std::memcpy(audio_slots.data() + *slot_index * audio.slot_stride_bytes(), &block, sizeof(block));
        result.bytes_used = 704;
        return result;
    }
    void write(const percept_feed_record& from) {
        // Room first: the ring is the provider's to respect.
        while (tail - std::atomic_ref(feed().record_head).load() >= PERCEPT_FEED_RING_RECORDS) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        feed().records[tail % PERCEPT_FEED_RING_RECORDS] = from;
        std::atomic_ref(feed().record_tail).store(++tail);
        static_cast<void>(!::write(bell.borrow(), "", 1));
    }
    /// The next sample within ten seconds.
    std::optional<Sample> pop() {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        Sample sample;
        do {
            if (queue.pop(sample)) {
                return sample;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        } while (std::chrono::steady_clock::now() < end);
        return std::nullopt;
    }
    void release(const Sample& sample) {
        if ((sample.flags & (kEnd | kMark)) == 0 && sample.kind != Kind::Imu) {
            (sample.kind == Kind::Camera ? camera : audio).adopt(sample.slot).end();
        }
    }
    /// Waits until the daemon has read all records.
    void settle() {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (std::atomic_ref(feed().record_head).load() != tail && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        REQUIRE(std::atomic_ref(feed().record_head).load() == tail);
    }
    std::uint64_t invalid_count() const {
        return source->counters(Kind::Camera).invalid_count + source->counters(Kind::Microphone).invalid_count +
               source->counters(Kind::Imu).invalid_count;
    }
};

}  // namespace perceptd::sensor::test

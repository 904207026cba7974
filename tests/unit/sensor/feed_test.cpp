// FeedSource against providers that are honest, slow, wrong, hostile or gone.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "feed_provider.hpp"

using namespace perceptd;
using namespace perceptd::sensor;
using namespace perceptd::sensor::test;

namespace {}  // namespace

TEST_CASE("an honest provider's samples arrive in order, then the ends") {
    FeedStage stage;
    for (std::uint64_t sequence = 0; sequence < 50; ++sequence) {
        for (const Kind kind : kKinds) {
            percept_feed_record record = stage.filled(kind, sequence);
            record.accel_mps2[1] = static_cast<float>(sequence);
            stage.write(record);
            const auto sample = stage.pop();
            REQUIRE(sample);
            REQUIRE(sample->kind == kind);
            REQUIRE(sample->sequence == sequence);
            REQUIRE(sample->hub_ns == record.hub_ns);
            REQUIRE(sample->flags == 0);
            if (kind == Kind::Imu) {
                REQUIRE(sample->accel_mps2[1] == static_cast<float>(sequence));
            } else {
                REQUIRE(sample->slot.slot_index == record.slot_index);
                REQUIRE(sample->slot.generation % 2 == 0);
            }
            stage.release(*sample);
        }
    }
    for (const Kind kind : kKinds) {
        percept_feed_record end = stage.record(kind, 50);
        end.flags = PERCEPT_FEED_END;
        stage.write(end);
        const auto sample = stage.pop();
        REQUIRE(sample);
        CHECK(sample->flags == kEnd);
        CHECK(stage.source->counters(kind).delivered_count == 50);
        stage.write(stage.record(kind, 51));  // after its end
    }
    stage.settle();
    CHECK(stage.invalid_count() == 3);
}

TEST_CASE("one wrong word makes a record void, its slot goes back, and the next record counts") {
    struct Attack {
        const char* name;
        Kind kind;
        std::function<void(percept_feed_record&, FeedStage&)> apply;
    };
    constexpr auto kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr auto kInf = std::numeric_limits<float>::infinity();
    static const Attack kAttacks[] = {
        {"stream 0", Kind::Imu, [](auto& r, auto&) { r.stream = 0; }},
        {"stream 4", Kind::Imu, [](auto& r, auto&) { r.stream = 4; }},
        {"stream 2^32-1", Kind::Imu, [](auto& r, auto&) { r.stream = ~0U; }},
        {"unknown flag", Kind::Imu, [](auto& r, auto&) { r.flags = 16; }},
        {"damage without an end", Kind::Imu, [](auto& r, auto&) { r.flags = PERCEPT_FEED_DAMAGED; }},
        {"unknown IMU flag", Kind::Imu, [](auto& r, auto&) { r.imu_flags |= PERCEPT_IMU_NEIGHBOUR; }},
        {"no IMU part", Kind::Imu, [](auto& r, auto&) { r.imu_flags = 0; }},
        {"NaN", Kind::Imu, [](auto& r, auto&) { r.accel_mps2[2] = kNan; }},
        {"infinite", Kind::Imu, [](auto& r, auto&) { r.gyro_radps[0] = -kInf; }},
        {"absurd reading", Kind::Imu, [](auto& r, auto&) { r.accel_mps2[0] = 1e9F; }},
        {"sensor stamp back", Kind::Imu, [](auto& r, auto&) { r.sensor_ns = -5; }},
        {"sensor stamp repeated", Kind::Imu, [](auto& r, auto&) { r.sensor_ns = 1; }},
        {"sensor stamp absurd", Kind::Imu, [](auto& r, auto&) { r.sensor_ns = INT64_MAX; }},
        {"sensor stamp absurdly early", Kind::Imu, [](auto& r, auto&) { r.sensor_ns = INT64_MIN; }},
        {"hub stamp back", Kind::Imu, [](auto& r, auto&) { r.hub_ns -= 1'000'000; }},
        {"hub stamp zero", Kind::Imu, [](auto& r, auto&) { r.hub_ns = 0; }},
        {"hub stamp far ahead", Kind::Imu, [](auto& r, auto&) { r.hub_ns += 4000 * kNsPerSecond; }},
        {"hub stamp absurd", Kind::Imu, [](auto& r, auto&) { r.hub_ns = INT64_MAX; }},
        {"hub stamp absurdly early", Kind::Imu, [](auto& r, auto&) { r.hub_ns = INT64_MIN; }},
        {"sequence repeated", Kind::Imu, [](auto& r, auto&) { r.sequence = 0; }},
        {"sequence absurd", Kind::Imu, [](auto& r, auto&) { r.sequence = ~std::uint64_t{0}; }},
        {"end far ahead", Kind::Imu,
         [](auto& r, auto&) {
             r.flags = PERCEPT_FEED_END;
             r.hub_ns = INT64_MAX;
         }},
        {"slot past the end", Kind::Camera, [](auto& r, auto&) { r.slot_index = 8; }},
        {"slot 2^32-1", Kind::Camera, [](auto& r, auto&) { r.slot_index = ~0U; }},
        {"frame too long", Kind::Camera, [](auto& r, auto&) { r.bytes_used = ~0U; }},
        {"frame too short", Kind::Camera, [](auto& r, auto&) { r.bytes_used -= 1; }},
        {"sound past the slot", Kind::Microphone, [](auto& r, auto&) { r.bytes_used = 1U << 20; }},
        {"sound without a head", Kind::Microphone, [](auto& r, auto&) { r.bytes_used = 39; }},
        {"sound head overrun", Kind::Microphone,
         [](auto& r, FeedStage& s) {
             const percept_audio_block block{16'000, 1, 160, 161, 0, 0, 64, 384};
             std::memcpy(s.audio_slots.data() + r.slot_index * s.audio.slot_stride_bytes(), &block, sizeof(block));
         }},
        {"sound offset wraps", Kind::Microphone,
         [](auto& r, FeedStage& s) {
             const percept_audio_block block{16'000, 1, 160, 160, 0, 0, 64, ~1U};
             std::memcpy(s.audio_slots.data() + r.slot_index * s.audio.slot_stride_bytes(), &block, sizeof(block));
         }},
        {"sound of another rate", Kind::Microphone,
         [](auto& r, FeedStage& s) {
             const percept_audio_block block{0, 1, 160, 160, 0, 0, 64, 384};
             std::memcpy(s.audio_slots.data() + r.slot_index * s.audio.slot_stride_bytes(), &block, sizeof(block));
         }},
    };
    for (const Attack& attack : kAttacks) {
        INFO(attack.name);
        FeedStage stage;
        stage.write(stage.filled(attack.kind, 0));
        const auto first = stage.pop();
        REQUIRE(first);
        stage.release(*first);
        percept_feed_record bad = stage.filled(attack.kind, 1);
        attack.apply(bad, stage);
        stage.write(bad);
        stage.settle();
        CHECK(stage.invalid_count() == 1);
        stage.write(stage.filled(attack.kind, 2));
        const auto next = stage.pop();
        REQUIRE(next);
        CHECK(next->sequence == 2);
        CHECK((next->flags & kGap) != 0);
        stage.release(*next);
    }
}

TEST_CASE("a slot handed in twice counts once") {
    FeedStage stage;
    percept_feed_record record = stage.filled(Kind::Camera, 0);
    stage.write(record);
    percept_feed_record again = stage.record(Kind::Camera, 1);
    again.slot_index = record.slot_index;
    again.bytes_used = record.bytes_used;
    stage.write(again);
    const auto sample = stage.pop();
    REQUIRE(sample);
    stage.settle();
    CHECK(stage.invalid_count() == 1);
    CHECK(stage.source->counters(Kind::Camera).delivered_count == 1);
    stage.release(*sample);
}

TEST_CASE("a tail that cannot be true is passed over, forwards and backwards") {
    FeedStage stage;
    for (const std::uint64_t jump : {std::uint64_t{5000}, ~std::uint64_t{0} - 10, std::uint64_t{1} << 63}) {
        stage.tail += jump;
        std::atomic_ref(stage.feed().record_tail).store(stage.tail);
        stage.settle();
    }
    CHECK(stage.invalid_count() == 3);
    stage.write(stage.record(Kind::Imu, 0));
    CHECK(stage.pop());
}

TEST_CASE("a recording waits for free slots and loses nothing") {
    FeedStage stage;
    std::mt19937 random(3);
    std::vector<Sample> held;
    std::uint64_t popped = 0;
    std::uint64_t written = 0;
    while (popped < 300) {
        while (written < 300) {
            const auto slot_index = stage.take_slot(Kind::Camera, std::chrono::milliseconds(written % 7 == 0 ? 3 : 0));
            if (!slot_index) {
                break;
            }
            percept_feed_record record = stage.record(Kind::Camera, written++);
            record.slot_index = *slot_index;
            record.bytes_used = static_cast<std::uint32_t>(camera_slot_bytes(*stage.offer.camera));
            stage.write(record);
        }
        Sample sample;
        while (stage.queue.pop(sample)) {
            REQUIRE(sample.sequence == popped++);
            held.push_back(sample);
        }
        CHECK(held.size() <= 8);
        std::shuffle(held.begin(), held.end(), random);
        for (std::size_t keep = random() % 8; held.size() > keep; held.pop_back()) {
            stage.release(held.back());
        }
    }
    for (const Sample& sample : held) {
        stage.release(sample);
    }
    stage.settle();  // a sample may be taken before it is counted
    const StreamCounters& counters = stage.source->counters(Kind::Camera);
    CHECK(counters.delivered_count == 300);
    CHECK(counters.invalid_count + counters.dropped_queue_full_count + counters.gap_count == 0);
}

TEST_CASE("a full queue: a recording waits, a live sensor drops and counts") {
    const bool is_live = GENERATE(false, true);
    FeedStage stage(is_live);
    constexpr std::uint64_t kCount = SampleQueue::kCapacity + 500;
    std::thread provider([&] {
        for (std::uint64_t sequence = 0; sequence < kCount; ++sequence) {
            percept_feed_record record = stage.record(Kind::Imu, sequence);
            record.hub_ns = std::max(record.hub_ns, monotonic_ns());
            stage.write(record);
        }
    });
    if (is_live) {
        provider.join();
        stage.settle();
        CHECK(stage.source->counters(Kind::Imu).dropped_queue_full_count == 500);
        CHECK(stage.queue.size() == SampleQueue::kCapacity);
        return;
    }
    for (std::uint64_t sequence = 0; sequence < kCount; ++sequence) {
        const auto sample = stage.pop();
        REQUIRE(sample);
        REQUIRE(sample->sequence == sequence);
    }
    provider.join();
}

TEST_CASE("a live sensor's stamps must be near now") {
    FeedStage stage(true);
    percept_feed_record record = stage.record(Kind::Imu, 0);
    record.hub_ns = monotonic_ns() + 2 * kNsPerSecond;
    stage.write(record);
    record.hub_ns = monotonic_ns() - 70 * kNsPerSecond;
    stage.write(record);
    stage.settle();
    CHECK(stage.invalid_count() == 2);
}

TEST_CASE("records of an earlier start are void and their slots come back") {
    FeedStage stage;
    const percept_feed_record old = stage.filled(Kind::Camera, 0);
    stage.source->stop();
    stage.write(old);
    const std::uint32_t old_run = stage.run.run;
    stage.start();
    CHECK(stage.run.run != old_run);
    stage.settle();
    CHECK(stage.invalid_count() == 0);
    CHECK(stage.queue.size() == 0);
    std::set<std::uint32_t> slots;
    for (int i = 0; i < 8; ++i) {
        const auto slot_index = stage.take_slot(Kind::Camera);
        REQUIRE(slot_index);
        slots.insert(*slot_index);
    }
    CHECK(slots.size() == 8);
    CHECK(stage.source->lent_slot_count(Kind::Camera) == 8);
}

TEST_CASE("a doorbell that is dead, flooded or never rung delays and harms nothing") {
    FeedStage stage;
    const int how = GENERATE(0, 1, 2);
    if (how == 0) {
        stage.bell.reset();
    } else if (how == 1) {
        const std::string noise(4096, 'x');
        ::fcntl(stage.bell.borrow(), F_SETFL, O_NONBLOCK);
        while (::write(stage.bell.borrow(), noise.data(), noise.size()) > 0) {
        }
    }
    stage.feed().records[0] = stage.record(Kind::Imu, 0);
    std::atomic_ref(stage.feed().record_tail).store(++stage.tail);
    CHECK(stage.pop());
}

TEST_CASE("too much that is invalid is reported once and ends the reading") {
    FeedStage stage;
    percept_feed_record bad = stage.record(Kind::Imu, 0);
    bad.flags = 1U << 31;
    pollfd fault{stage.source->fault_fd(), POLLIN, 0};
    for (int i = 0; i < 4096; ++i) {
        stage.write(bad);
    }
    stage.settle();
    CHECK(::poll(&fault, 1, 0) == 0);
    stage.write(bad);
    CHECK(::poll(&fault, 1, 10'000) == 1);
}

TEST_CASE("random words in the ring never crash, stall or leak, and what passes keeps its contract") {
    const bool is_live = GENERATE(false, true);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        FeedStage stage(is_live);
        std::mt19937_64 random(seed);
        const auto word = [&](std::uint64_t good) {  // mostly near the truth, sometimes anything
            switch (random() % 8) {
                case 0: return random();
                case 1: return good + random() % 3 - 1;
                case 2: return std::uint64_t{0};
                case 3: return ~std::uint64_t{0};
                default: return good;
            }
        };
        std::uint64_t popped = 0;
        for (int i = 0; i < 2000; ++i) {
            const Kind kind = kKinds[random() % 3];
            percept_feed_record record = stage.record(kind, static_cast<std::uint64_t>(i));
            record.stream = static_cast<std::uint32_t>(word(record.stream));
            record.flags = static_cast<std::uint32_t>(random() % 5 == 0 ? random() : 0);
            record.slot_index = static_cast<std::uint32_t>(word(random() % 8));
            record.bytes_used = static_cast<std::uint32_t>(word(kind == Kind::Camera ? 64 * 48 * 3 / 2 : 704));
            record.imu_flags = static_cast<std::uint32_t>(word(record.imu_flags));
            record.run = static_cast<std::uint32_t>(word(record.run));
            record.sensor_ns = static_cast<std::int64_t>(word(static_cast<std::uint64_t>(record.sensor_ns)));
            record.hub_ns = static_cast<std::int64_t>(word(static_cast<std::uint64_t>(record.hub_ns)));
            record.sequence = word(record.sequence);
            const auto bits = static_cast<std::uint32_t>(word(0x3f800000));
            std::memcpy(&record.accel_mps2[random() % 3], &bits, sizeof(bits));
            stage.feed().records[stage.tail % PERCEPT_FEED_RING_RECORDS] = record;
            stage.tail += random() % 200 == 0 ? random() : 1;
            std::atomic_ref(stage.feed().record_tail).store(stage.tail);
            stage.feed().free_tail[random() % 2] = random();
            stage.feed().free_slots[random() % 2][random() % PERCEPT_FEED_FREE_SLOTS] =
                static_cast<std::uint32_t>(random());
            stage.feed().free_head[random() % 2] = random();
            static_cast<void>(!::send(stage.bell.borrow(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
            if (i % 50 == 0) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));  // let the daemon's side look at it
            }
            Sample sample;
            while (stage.queue.pop(sample)) {
                ++popped;
                for (const float reading : sample.accel_mps2) {
                    REQUIRE(std::isfinite(reading));
                }
                if ((sample.flags & (kEnd | kMark)) == 0 && sample.kind != Kind::Imu) {
                    REQUIRE(sample.slot.slot_index < 8);
                    REQUIRE(sample.slot.generation % 2 == 0);
                }
                stage.release(sample);
            }
        }
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (stage.invalid_count() == 0 && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        INFO("seed " << seed << ", popped " << popped << ", refused " << stage.invalid_count());
        CHECK(stage.invalid_count() > 0);
    }
}

TEST_CASE("after the seal nobody gets a new writable mapping, and the old one still works") {
    const auto heap = arena::make_heap("memfd");
    arena::Arena arena(*heap, {"camera", 2, 4096, arena::Writer::Provider});
    UniqueFd provider_fd = arena.provider_fd();
    REQUIRE(provider_fd);
    const MappedRegion early(provider_fd.borrow(), 8192, MapAccess::ReadWrite);
    arena.seal();
    early.data()[5] = std::byte{42};
    CHECK(arena.slot(0)[5] == std::byte{42});
    CHECK_FALSE(arena.provider_fd());

    const auto is_unwritable = [](int fd) {
        const std::string path = "/proc/self/fd/" + std::to_string(fd);
        const UniqueFd reopened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        for (const int each : {fd, reopened.borrow()}) {
            if (each < 0) {
                continue;
            }
            void* const mapping = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, each, 0);
            CHECK(mapping == MAP_FAILED);
            CHECK(::pwrite(each, "x", 1, 0) < 0);
            CHECK(::ftruncate(each, 0) != 0);
            CHECK(::fallocate(each, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
            void* const reading = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, each, 0);
            REQUIRE(reading != MAP_FAILED);
            CHECK(::mprotect(reading, 4096, PROT_READ | PROT_WRITE) != 0);
            ::munmap(reading, 4096);
        }
    };
    is_unwritable(provider_fd.borrow());  // the provider's own descriptor
    is_unwritable(arena.shared_fd());     // a client's
    is_unwritable(arena.header_fd());
    CHECK(arena.slot(0)[5] == std::byte{42});
}

TEST_CASE("offers out of range are refused, with the range") {
    const auto refused = [](const std::function<void(Offer&)>& spoil, const std::string& text) {
        Offer offer = test_offer(true);
        spoil(offer);
        CHECK_THROWS_WITH(check_offer(offer), Catch::Contains(text));
    };
    CHECK_NOTHROW(check_offer(test_offer(true)));
    refused([](Offer& o) { o.origin.clear(); }, "origin");
    refused([](Offer& o) { o.origin.assign(129, 'x'); }, "origin");
    refused([](Offer& o) { o.camera->width_px = 65; }, "even");
    refused([](Offer& o) { o.camera->width_px = 8194; }, "8192");
    refused([](Offer& o) { o.camera->height_px = 0; }, "16");
    refused([](Offer& o) { o.camera->stride_bytes = 63; }, "stride");
    refused([](Offer& o) { o.camera->stride_bytes = ~0U; }, "stride");
    refused([](Offer& o) { o.camera->rate_hz = std::nan(""); }, "rate");
    refused([](Offer& o) { o.camera->rate_hz = 0; }, "rate");
    refused([](Offer& o) { o.audio->rate_hz = 0; }, "sound rate");
    refused([](Offer& o) { o.audio->channel_count = 9; }, "channels");
    refused([](Offer& o) { o.audio->block_frames = ~0U; }, "blocks");
    refused([](Offer& o) { o.imu->rate_hz = 1e9; }, "IMU rate");
    refused([](Offer& o) { o.imu->rate_hz = -1; }, "IMU rate");
    Offer nothing;
    nothing.origin = "x";
    CHECK_THROWS_WITH(check_offer(nothing), Catch::Contains("nothing is offered"));
}

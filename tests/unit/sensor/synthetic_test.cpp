// The synthetic source through its real arenas and queue: nothing twice, nothing missing, nothing kept.
#include "sensor/synthetic.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "arena/heap.hpp"
#include "arena/lease.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hot_path.hpp"

using namespace perceptd;
using namespace perceptd::sensor;

namespace {

constexpr std::int64_t kHubStartNs = 1'000'000'000'000;

struct Taken {
    Sample sample;
    std::vector<std::byte> bytes;  // the slot's, when kept
};

/// Waits for what another thread does; half a minute is for machines that do much else.
template <typename Condition>
bool comes_true(Condition&& condition) {
    const std::int64_t limit_ns = monotonic_ns() + 30 * kNsPerSecond;
    while (!condition()) {
        if (monotonic_ns() > limit_ns) {
            return false;
        }
        ::usleep(1'000);
    }
    return true;
}

/// A source with arenas and a queue, and the consumer's side of them.
class Rig {
public:
    explicit Rig(const SyntheticOptions& options, std::uint32_t slot_count = 4) : source(options) {
        const auto heap = arena::make_heap("memfd");
        const Offer& offer = source.offer();
        if (offer.camera) {
            camera = std::make_unique<arena::Arena>(
                *heap, arena::Arena::Options{"camera0", slot_count, camera_slot_bytes(*offer.camera)});
        }
        if (offer.audio) {
            audio = std::make_unique<arena::Arena>(
                *heap, arena::Arena::Options{"audio0", slot_count, audio_slot_bytes(*offer.audio)});
        }
    }
    ~Rig() {
        source.stop();
        drain();  // an arena must get every slot back
    }

    void start() { source.start({camera.get(), audio.get(), source.offer().imu.has_value(), queue.get()}); }

    /// Takes what comes until `end_count` kEnd records or `limit_ns` of silence.
    void take(std::size_t end_count, bool keep_bytes = false, std::int64_t limit_ns = 5 * kNsPerSecond) {
        std::int64_t last_ns = monotonic_ns();
        while (ends.size() < end_count && monotonic_ns() - last_ns < limit_ns) {
            Sample sample;
            if (!queue->pop(sample)) {
                pollfd wake{wake_fd.borrow(), POLLIN, 0};
                ::poll(&wake, 1, 50);
                std::uint64_t count = 0;
                [[maybe_unused]] const ssize_t drained = ::read(wake_fd.borrow(), &count, sizeof(count));
                continue;
            }
            last_ns = monotonic_ns();
            accept(sample, keep_bytes);
        }
    }
    void drain() {
        for (Sample sample; queue->pop(sample);) {
            accept(sample, false);
        }
    }
    void accept(const Sample& sample, bool keep_bytes) {
        if ((sample.flags & kEnd) != 0) {
            ends.push_back(sample);
            return;
        }
        Taken item{sample, {}};
        if (sample.kind != Kind::Imu) {
            arena::Lease lease = (sample.kind == Kind::Camera ? *camera : *audio).adopt(sample.slot);
            CHECK(lease.ref().generation % 2 == 0);
            if (keep_bytes) {
                item.bytes.assign(lease.bytes().begin(), lease.bytes().begin() + sample.bytes_used);
            }
        }
        taken[index_of(sample.kind)].push_back(std::move(item));
    }

    const std::vector<Taken>& of(Kind kind) const { return taken[index_of(kind)]; }

    UniqueFd wake_fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::unique_ptr<SampleQueue> queue = std::make_unique<SampleQueue>(wake_fd.borrow());
    std::unique_ptr<arena::Arena> camera, audio;
    SyntheticSource source;
    std::array<std::vector<Taken>, kKindCount> taken;
    std::vector<Sample> ends;
};

SyntheticOptions fast(std::int64_t duration_ns) {
    return {.pace = Pace::Fast, .duration_ns = duration_ns, .hub_start_ns = kHubStartNs};
}

percept_audio_block block_of(const Taken& item) {
    percept_audio_block block;
    REQUIRE(item.bytes.size() >= sizeof(block));
    std::memcpy(&block, item.bytes.data(), sizeof(block));
    return block;
}

}  // namespace

TEST_CASE("fast pace delivers every sample exactly once and ends each kind once", "[synthetic]") {
    Rig rig(fast(3 * kNsPerSecond), 2);
    const std::uint64_t allocations = hot_path::allocation_count();
    rig.start();
    rig.take(3);
    REQUIRE(rig.ends.size() == 3);
    CHECK(rig.of(Kind::Camera).size() == 90);
    CHECK(rig.of(Kind::Microphone).size() == 300);
    CHECK(rig.of(Kind::Imu).size() == 600);
    for (const auto& stream : rig.taken) {
        for (std::size_t i = 0; i < stream.size(); ++i) {
            REQUIRE(stream[i].sample.sequence == i);
            REQUIRE(stream[i].sample.flags == 0);
        }
    }
    std::array<int, kKindCount> end_count{};
    for (const Sample& end : rig.ends) {
        ++end_count[index_of(end.kind)];
        CHECK(end.hub_ns == kHubStartNs + 3 * kNsPerSecond);
    }
    CHECK(end_count == std::array<int, kKindCount>{1, 1, 1});
    rig.source.stop();
    rig.source.stop();
    CHECK(rig.camera->free_count() == rig.camera->slot_count());
    CHECK(rig.audio->free_count() == rig.audio->slot_count());
    CHECK(rig.source.counters(Kind::Camera).delivered_count == 90);
    CHECK(rig.source.counters(Kind::Camera).dropped_no_slot_count == 0);
    CHECK(hot_path::allocation_count() == allocations);
}

TEST_CASE("frames, sound blocks and IMU rows are the scene at their stamps", "[synthetic]") {
    SyntheticOptions options = fast(kNsPerSecond);
    options.camera->clock.error_ppm = 80;
    options.microphone->clock.error_ppm = -120;
    options.imu->clock.error_ppm = 35;
    Rig rig(options);
    rig.start();
    rig.take(3, true);
    const Scene& scene = rig.source.scene();
    const CameraFormat format = *rig.source.offer().camera;
    for (const std::size_t i : {0UL, 9UL, 10UL, 29UL}) {
        const Taken& item = rig.of(Kind::Camera).at(i);
        std::vector<std::byte> expected(camera_slot_bytes(format));
        scene.render_frame(rig.source.truth_ns(Kind::Camera, item.sample.sensor_ns), format.stride_bytes, expected);
        CHECK((item.bytes == expected));
        CHECK(item.sample.hub_ns - kHubStartNs == rig.source.truth_ns(Kind::Camera, item.sample.sensor_ns));
    }
    std::uint64_t next_frame = 0, next_mono = 0;
    std::int64_t first_click_frame = -1;
    for (const Taken& item : rig.of(Kind::Microphone)) {
        const percept_audio_block block = block_of(item);
        REQUIRE(block.first_frame == next_frame);
        REQUIRE(block.first_mono == next_mono);
        REQUIRE(block.frame_count == 480);
        REQUIRE(block.mono_count == 160);
        next_frame += block.frame_count;
        next_mono += block.mono_count;
        REQUIRE(block.mono_offset_bytes + block.mono_count * 2 == item.sample.bytes_used);
        std::vector<std::int16_t> original(std::size_t{block.frame_count} * 2);
        std::memcpy(original.data(), item.bytes.data() + block.original_offset_bytes, original.size() * 2);
        for (std::uint32_t i = 0; i < block.frame_count && first_click_frame < 0; ++i) {
            if (original[2 * i] > 10'000) {
                first_click_frame = static_cast<std::int64_t>(block.first_frame + i);
                const double click_ns = double(item.sample.hub_ns - kHubStartNs) + i * 1e9 / 48'000;
                CHECK(std::abs(click_ns - double(kFirstStepNs)) < 2e9 / 48'000);
            }
        }
    }
    // -120 ppm: by the first step, 300 ms in, the device has counted 1.7 frames fewer than 14400.
    CHECK(first_click_frame == static_cast<std::int64_t>(std::ceil(14'400 * (1 - 120e-6))));
    for (const Taken& item : rig.of(Kind::Imu)) {
        const ImuTruth truth = scene.imu_at(rig.source.truth_ns(Kind::Imu, item.sample.sensor_ns));
        for (std::size_t axis = 0; axis < 3; ++axis) {
            REQUIRE(std::abs(double(item.sample.accel_mps2[axis]) - truth.accel_mps2[axis]) < 0.12);
            REQUIRE(std::abs(double(item.sample.gyro_radps[axis]) - truth.gyro_radps[axis]) < 0.012);
        }
        REQUIRE(item.sample.imu_flags == (PERCEPT_IMU_ACCEL | PERCEPT_IMU_GYRO));
    }
}

TEST_CASE("each clock errs as configured", "[synthetic]") {
    SyntheticOptions options = fast(20 * kNsPerSecond);
    options.camera.reset();
    options.microphone.reset();
    options.imu->clock = {.error_ppm = 250,
                          .jitter_ns = 20'000,
                          .kind = GENERATE(StampKind::Latched, StampKind::OneWay),
                          .origin_ns = 42};
    Rig rig(options);
    CHECK(rig.source.offer().stamp_kind[index_of(Kind::Imu)] == options.imu->clock.kind);
    rig.start();
    rig.take(1);
    const auto& rows = rig.of(Kind::Imu);
    REQUIRE(rows.size() == 4001);  // a fast clock fits one row more
    CHECK(rows.front().sample.sensor_ns == 42);
    CHECK(rows.back().sample.sensor_ns == 42 + 20 * kNsPerSecond);
    double sum_ns = 0, square_ns2 = 0, least_ns = 1e9;
    for (const Taken& row : rows) {
        const double truth_ns = double(row.sample.sensor_ns - 42) / (1 + 250e-6);
        const double late_ns = double(row.sample.hub_ns - kHubStartNs) - truth_ns;
        sum_ns += late_ns;
        square_ns2 += late_ns * late_ns;
        least_ns = std::min(least_ns, late_ns);
    }
    const double mean_ns = sum_ns / double(rows.size());
    const double sd_ns = std::sqrt(square_ns2 / double(rows.size()) - mean_ns * mean_ns);
    CHECK(sd_ns == Approx(20'000).epsilon(0.1));
    if (options.imu->clock.kind == StampKind::OneWay) {
        CHECK(mean_ns == Approx(20'000).epsilon(0.1));
        CHECK(least_ns >= -1.0);
    } else {
        CHECK(std::abs(mean_ns) < 1'500);
    }
}

TEST_CASE("two runs and a restart give the same samples", "[synthetic]") {
    SyntheticOptions options = fast(kNsPerSecond);
    options.camera->clock.jitter_ns = 5'000;
    Rig first(options), second(options);
    first.start();
    first.take(3, true);
    first.start();  // from the beginning again
    first.take(6, true);
    second.start();
    second.take(3, true);
    for (std::size_t kind = 0; kind < kKindCount; ++kind) {
        const std::size_t count = second.taken[kind].size();
        REQUIRE(first.taken[kind].size() == 2 * count);
        for (std::size_t i = 0; i < 2 * count; ++i) {
            const Taken& a = first.taken[kind][i];
            const Taken& b = second.taken[kind][i % count];
            REQUIRE(a.sample.hub_ns == b.sample.hub_ns);
            REQUIRE(a.sample.accel_mps2 == b.sample.accel_mps2);
            REQUIRE((a.bytes == b.bytes));
        }
    }
}

TEST_CASE("real time: no slot means a counted loss, a hole and a gap flag; stop leaks nothing", "[synthetic]") {
    SyntheticOptions options;
    options.camera->rate_hz = 100;
    Rig rig(options, 3);
    rig.start();
    const std::int64_t hub_start_ns = rig.source.hub_start_ns();
    // Nobody takes: three slots of each kind fill, then losses begin. However slow the machine is.
    CHECK(comes_true([&] { return rig.source.counters(Kind::Camera).dropped_no_slot_count > 5; }));
    CHECK(comes_true([&] { return rig.source.counters(Kind::Microphone).dropped_no_slot_count > 0; }));
    CHECK(rig.source.counters(Kind::Camera).delivered_count == 3);
    CHECK(rig.source.counters(Kind::Microphone).delivered_count == 3);
    const auto& frames = rig.of(Kind::Camera);
    CHECK(comes_true([&] {
        rig.drain();
        return frames.size() > 20 && rig.of(Kind::Imu).size() > 20;
    }));
    rig.source.stop();
    rig.drain();
    REQUIRE(frames.size() > 20);
    CHECK(frames[2].sample.sequence == 2);
    CHECK(frames[3].sample.sequence > 3);
    for (std::size_t i = 1; i < frames.size(); ++i) {
        const bool is_hole = frames[i].sample.sequence != frames[i - 1].sample.sequence + 1;
        REQUIRE(frames[i].sample.flags == (is_hole ? std::uint32_t{kGap} : 0u));
    }
    CHECK(rig.source.counters(Kind::Camera).gap_count >= 1);
    for (const Taken& row : rig.of(Kind::Imu)) {
        REQUIRE(row.sample.hub_ns == hub_start_ns + std::int64_t(row.sample.sequence) * 5 * kNsPerMs);
        REQUIRE(row.sample.hub_ns <= monotonic_ns());
    }
    CHECK(rig.ends.empty());
    CHECK(rig.camera->free_count() == rig.camera->slot_count());
    CHECK(rig.audio->free_count() == rig.audio->slot_count());
}

TEST_CASE("fast pace stops while it waits for a slot", "[synthetic]") {
    Rig rig(fast(0));
    rig.start();
    ::usleep(50'000);
    rig.source.stop();
    rig.drain();
    CHECK(rig.of(Kind::Camera).size() <= rig.camera->slot_count());
    CHECK(rig.source.counters(Kind::Camera).dropped_no_slot_count == 0);
    CHECK(rig.camera->free_count() == rig.camera->slot_count());
    CHECK(rig.audio->free_count() == rig.audio->slot_count());
}

TEST_CASE("a missing kind is not offered, and one not wanted stays silent", "[synthetic]") {
    SyntheticOptions options = fast(kNsPerSecond / 2);
    options.microphone.reset();
    Rig rig(options);
    CHECK_FALSE(rig.source.offer().audio);
    CHECK_FALSE(rig.source.offer().is_live);
    rig.source.start({rig.camera.get(), nullptr, false, rig.queue.get()});
    rig.take(1);
    CHECK(rig.ends.size() == 1);
    CHECK(rig.of(Kind::Camera).size() == 15);
    CHECK(rig.of(Kind::Imu).empty());
    CHECK_THROWS_AS(rig.source.start({nullptr, rig.camera.get(), false, rig.queue.get()}), Error);
    CHECK_THROWS_AS(rig.source.start({nullptr, nullptr, true, nullptr}), Error);
}

TEST_CASE("odd rates keep both sound signals whole", "[synthetic]") {
    SyntheticOptions options = fast(kNsPerSecond);
    options.camera.reset();
    options.imu.reset();
    options.microphone->rate_hz = 44'100;
    options.microphone->channel_count = 1;
    Rig rig(options);
    rig.start();
    rig.take(1, true);
    std::uint64_t next_mono = 0;
    for (const Taken& item : rig.of(Kind::Microphone)) {
        const percept_audio_block block = block_of(item);
        REQUIRE(block.first_mono == next_mono);
        next_mono += block.mono_count;
    }
    CHECK(rig.of(Kind::Microphone).size() == 100);
    CHECK(next_mono == 16'000);
    options.microphone->clock = {.error_ppm = 1, .kind = StampKind::Identity};
    CHECK_THROWS_AS(SyntheticSource(options), Error);
}

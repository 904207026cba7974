#include "sync/aligner.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace perceptd;
using perceptd::sensor::Kind;
using perceptd::sync::Aligner;
using perceptd::sync::AlignerOptions;
using perceptd::sync::CloseReason;
using perceptd::sync::WindowPlan;

namespace {

constexpr std::int64_t kPeriod_ns = 33'333'333;
constexpr std::int64_t kLongest_ns = 200'000'000;
constexpr std::int64_t kBlock_ns = 10'000'000;

sensor::Sample frame_of(std::uint64_t sequence) {
    sensor::Sample frame;
    frame.sequence = sequence;
    return frame;
}

struct Scene {
    std::array<bool, 3> present{true, true, true};
    std::vector<std::int64_t> frames;
    std::int64_t audio_start_ns = 0;
    int audio_blocks = 0;
    std::vector<std::int64_t> rows;

    std::int64_t audio_end_ns() const { return audio_start_ns + audio_blocks * kBlock_ns; }
    std::vector<std::int64_t> slices() const {
        std::vector<std::int64_t> out;
        for (int k = 0; k * kBlock_ns + 25'000'000 <= audio_blocks * kBlock_ns; ++k) {
            out.push_back(audio_start_ns + k * kBlock_ns + sync::kMelHalf_ns);
        }
        return out;
    }
};

struct Truth {
    std::vector<std::int64_t> starts;  // window i begins at starts[i]; it owns up to starts[i + 1]
    std::vector<int> frame_of_window;  // -1: tick
};

// The rules written as a walk over complete, sorted knowledge: no watermarks, no order of arrival.
Truth partition(const Scene& scene) {
    std::vector<std::int64_t> firsts;
    std::vector<std::int64_t> lasts;
    if (!scene.frames.empty()) {
        firsts.push_back(scene.frames.front());
        lasts.push_back(scene.frames.back() + 1);
    }
    if (scene.audio_blocks > 0) {
        firsts.push_back(scene.audio_start_ns);
        lasts.push_back(scene.audio_end_ns());
    }
    if (!scene.rows.empty()) {
        firsts.push_back(scene.rows.front());
        lasts.push_back(scene.rows.back());
    }
    Truth truth;
    if (firsts.empty()) {
        return truth;
    }
    const std::int64_t first_ns = *std::min_element(firsts.begin(), firsts.end());
    const std::int64_t last_ns = *std::max_element(lasts.begin(), lasts.end());
    std::size_t next = 0;
    std::int64_t at_ns = first_ns;
    bool tick = true;
    if (!scene.frames.empty() && scene.frames[0] < first_ns + kPeriod_ns) {
        at_ns = scene.frames[0];
        tick = false;
    }
    while (true) {
        truth.starts.push_back(at_ns);
        truth.frame_of_window.push_back(tick ? -1 : static_cast<int>(next++));
        const std::int64_t reach_ns = tick ? kPeriod_ns : kLongest_ns;
        if (next < scene.frames.size() && scene.frames[next] - at_ns <= reach_ns) {
            at_ns = scene.frames[next];
            tick = false;
        } else if (next < scene.frames.size() || last_ns >= at_ns + kPeriod_ns) {
            at_ns += kPeriod_ns;
            tick = true;
        } else {
            return truth;
        }
    }
}

Scene random_scene(std::mt19937_64& random) {
    auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    Scene scene;
    const std::int64_t base_ns = pick(0, 1'000'000'000'000);
    for (bool& present : scene.present) {
        present = pick(0, 5) != 0;
    }
    if (scene.present[0]) {
        std::int64_t t_ns = base_ns + (pick(0, 2) == 0 ? pick(0, 300'000'000) : pick(0, 40'000'000));
        const std::int64_t count = pick(0, 9) == 0 ? 0 : pick(1, 60);
        for (std::int64_t i = 0; i < count; ++i) {
            scene.frames.push_back(t_ns);
            const std::int64_t kind = pick(0, 19);
            t_ns += kind == 0   ? pick(1, 700'000'000)
                    : kind == 1 ? kPeriod_ns * pick(1, 7)
                    : kind == 2 ? kLongest_ns
                                : kPeriod_ns + pick(-2'000'000, 2'000'000);
        }
    }
    if (scene.present[1] && pick(0, 9) != 0) {
        scene.audio_start_ns = base_ns + pick(0, 60'000'000);
        scene.audio_blocks = static_cast<int>(pick(1, 200));
    }
    if (scene.present[2] && pick(0, 9) != 0) {
        std::int64_t t_ns = base_ns + pick(0, 60'000'000);
        const std::int64_t count = pick(1, 600);
        for (std::int64_t i = 0; i < count; ++i) {
            scene.rows.push_back(t_ns);
            t_ns += pick(0, 30) == 0 ? pick(1, 90'000'000) : pick(1, 10'000'000);
        }
        if (!scene.frames.empty() && pick(0, 1) == 0) {  // a row exactly on a frame's stamp
            scene.rows.push_back(scene.frames[scene.frames.size() / 2]);
            std::sort(scene.rows.begin(), scene.rows.end());
            scene.rows.erase(std::unique(scene.rows.begin(), scene.rows.end()), scene.rows.end());
        }
    }
    if (pick(0, 1) == 0) {  // on a coarse grid, so that stamps, ends and ticks meet exactly
        auto snap = [](std::int64_t t_ns) { return t_ns / (kPeriod_ns / 3) * (kPeriod_ns / 3); };
        for (auto* times : {&scene.frames, &scene.rows}) {
            std::transform(times->begin(), times->end(), times->begin(), snap);
            times->erase(std::unique(times->begin(), times->end()), times->end());
        }
        scene.audio_start_ns = snap(scene.audio_start_ns);
    }
    return scene;
}

struct Outcome {
    std::vector<WindowPlan> plans;
    bool complete = true;  // no window closed before all it owns had arrived
    std::uint64_t late = 0;
};

// Plays the scene as a recording: each stream in its own order, the streams interleaved at random.
Outcome play(const Scene& scene, std::mt19937_64& random) {
    AlignerOptions options;
    options.present = scene.present;
    options.live = false;
    Aligner aligner(options);
    Outcome out;
    const auto slices = scene.slices();
    std::array<std::size_t, 3> next{};
    std::array<bool, 3> over{!scene.present[0], !scene.present[1], !scene.present[2]};
    bool audio_begun = false;
    bool imu_begun = false;
    std::size_t slices_in = 0;
    auto poll_all = [&] {
        WindowPlan plan;
        // A wild clock must not matter to a recording.
        while (aligner.poll(static_cast<std::int64_t>(random() >> 2), plan) == Status::Ok) {
            out.plans.push_back(plan);
            out.complete &= slices_in == slices.size() || !plan.owns(slices[slices_in]);
            out.complete &= next[2] == scene.rows.size() || !plan.owns(scene.rows[next[2]]);
        }
    };
    const std::size_t favourite = random() % 3;  // one stream far ahead of the others
    while (!over[0] || !over[1] || !over[2]) {
        std::size_t kind = random() % 3;
        kind = random() % 2 != 0 ? favourite : kind;
        if (over[kind]) {
            kind = (kind + 1 + random() % 2) % 3;
        }
        if (over[kind]) {
            continue;
        }
        std::size_t& i = next[kind];
        if (kind == 0) {
            if (i == scene.frames.size()) {
                aligner.end(Kind::Camera);
                over[0] = true;
            } else {
                if (random() % 2 != 0) {  // a driver's bound: nothing before the next frame
                    REQUIRE(aligner.advance(Kind::Camera, scene.frames[i]) == Status::Ok);
                    poll_all();
                }
                const Status status = aligner.on_frame(scene.frames[i], frame_of(i));
                REQUIRE((status == Status::Ok || status == Status::Full));
                i += status == Status::Ok ? 1 : 0;
            }
        } else if (kind == 1) {
            if (i == static_cast<std::size_t>(scene.audio_blocks)) {
                aligner.end(Kind::Microphone);
                over[1] = true;
            } else {
                if (!audio_begun) {
                    REQUIRE(aligner.begin(Kind::Microphone, scene.audio_start_ns) == Status::Ok);
                    audio_begun = true;
                }
                ++i;
                const std::int64_t end_ns = scene.audio_start_ns + static_cast<std::int64_t>(i) * kBlock_ns;
                for (; slices_in < slices.size() && slices[slices_in] + sync::kMelHalf_ns <= end_ns; ++slices_in) {
                    out.late += aligner.admit(Kind::Microphone, slices[slices_in]) == Status::Late ? 1 : 0;
                }
                REQUIRE(aligner.advance(Kind::Microphone, end_ns) == Status::Ok);
            }
        } else if (i == scene.rows.size()) {
            aligner.end(Kind::Imu);
            over[2] = true;
        } else {
            if (!imu_begun) {
                REQUIRE(aligner.begin(Kind::Imu, scene.rows[i]) == Status::Ok);
                imu_begun = true;
            }
            out.late += aligner.admit(Kind::Imu, scene.rows[i]) == Status::Late ? 1 : 0;
            REQUIRE(aligner.advance(Kind::Imu, scene.rows[i]) == Status::Ok);
            ++i;
        }
        if (random() % 3 != 0) {
            poll_all();
        }
    }
    poll_all();
    WindowPlan plan;
    REQUIRE(aligner.poll(0, plan) == Status::Ended);
    return out;
}

}  // namespace

TEST_CASE("any interleaving of a recording gives the windows of sort-and-partition") {
    std::mt19937_64 random(20240501);
    for (int round = 0; round < 3'000; ++round) {
        const Scene scene = random_scene(random);
        const Truth truth = partition(scene);
        const Outcome out = play(scene, random);
        CAPTURE(round, scene.frames.size(), scene.audio_blocks, scene.rows.size());
        REQUIRE(out.plans.size() == truth.starts.size());
        REQUIRE(out.complete);
        REQUIRE(out.late == 0);
        for (std::size_t i = 0; i < out.plans.size(); ++i) {
            const WindowPlan& plan = out.plans[i];
            REQUIRE(plan.id == i);
            REQUIRE(plan.t0_ns == truth.starts[i]);
            REQUIRE(plan.t1_ns > plan.t0_ns);
            REQUIRE(plan.t1_ns - plan.t0_ns <= kLongest_ns);
            REQUIRE(plan.last == (i + 1 == out.plans.size()));
            if (!plan.last) {
                REQUIRE(plan.t1_ns == truth.starts[i + 1]);
            }
            const int frame = truth.frame_of_window[i];
            REQUIRE(plan.has_frame == (frame >= 0));
            REQUIRE(((plan.flags & sync::kTick) != 0) == (frame < 0));
            REQUIRE(((plan.flags & sync::kMissingVideo) != 0) == (frame < 0 && scene.present[0]));
            if (frame >= 0) {
                REQUIRE(plan.frame.sequence == static_cast<std::uint64_t>(frame));
            }
        }
        // Exactly once, in the window that the oracle names.
        std::vector<std::int64_t> items = scene.slices();
        items.insert(items.end(), scene.rows.begin(), scene.rows.end());
        for (const std::int64_t item : items) {
            const auto after = std::upper_bound(truth.starts.begin(), truth.starts.end(), item);
            const auto expected =
                static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - truth.starts.begin() - 1, 0));
            std::size_t owners = 0;
            for (const WindowPlan& plan : out.plans) {
                owners += plan.owns(item) ? 1 : 0;
            }
            REQUIRE(owners == 1);
            REQUIRE(out.plans[expected].owns(item));
        }
    }
}

TEST_CASE("at 30 fps the slices fall 3, 3, 4 and none is lost") {
    AlignerOptions options;
    options.live = false;
    options.present = {true, true, false};
    Aligner aligner(options);
    (void)aligner.begin(Kind::Microphone, 0);
    std::vector<WindowPlan> plans;
    int frame = 0;
    for (int block = 1; block <= 3'000; ++block) {
        for (; frame * kPeriod_ns <= block * kBlock_ns; ++frame) {
            REQUIRE(aligner.on_frame(frame * kPeriod_ns, frame_of(0)) == Status::Ok);
        }
        (void)aligner.advance(Kind::Microphone, block * kBlock_ns);
        WindowPlan plan;
        while (aligner.poll(0, plan) == Status::Ok) {
            plans.push_back(plan);
        }
    }
    REQUIRE(plans.size() > 800);
    int fours = 0;
    for (std::size_t i = 1; i < plans.size(); ++i) {
        int count = 0;
        for (std::int64_t k = 0; k < 3'000; ++k) {
            count += plans[i].owns(k * kBlock_ns + sync::kMelHalf_ns) ? 1 : 0;
        }
        REQUIRE((count == 3 || count == 4));
        fours += count == 4 ? 1 : 0;
        REQUIRE(plans[i].flags == 0);
        REQUIRE(plans[i].close_reason == CloseReason::Complete);
    }
    CHECK(std::abs(fours - static_cast<int>(plans.size() / 3)) <= 2);
}

TEST_CASE("duplicated and backward frames are counted and dropped") {
    Aligner aligner(AlignerOptions{.present = {true, false, false}, .live = false});
    CHECK(aligner.on_frame(100'000'000, frame_of(0)) == Status::Ok);
    CHECK(aligner.on_frame(100'000'000, frame_of(1)) == Status::Duplicate);
    CHECK(aligner.on_frame(90'000'000, frame_of(2)) == Status::Late);
    CHECK(aligner.on_frame(INT64_MAX, frame_of(3)) == Status::Invalid);
    CHECK(aligner.on_frame(130'000'000, frame_of(4)) == Status::Ok);
    aligner.end(Kind::Camera);
    CHECK(aligner.on_frame(160'000'000, frame_of(5)) == Status::Ended);
    WindowPlan plan;
    REQUIRE(aligner.poll(0, plan) == Status::Ok);
    CHECK((plan.frame.sequence == 0 && plan.t1_ns == 130'000'000 && !plan.last));
    REQUIRE(aligner.poll(0, plan) == Status::Ok);
    CHECK((plan.frame.sequence == 4 && plan.last && plan.close_reason == CloseReason::End));
    CHECK(aligner.poll(0, plan) == Status::Ended);
    CHECK(aligner.counters().duplicate_frames == 1);
    CHECK(aligner.counters().backward_frames == 1);
    CHECK(aligner.counters().refused_frames == 2);
}

TEST_CASE("an epoch cuts the window that holds it and names the next one") {
    Aligner aligner(AlignerOptions{.present = {true, false, false}, .live = false});
    REQUIRE(aligner.on_epoch(1, 0) == Status::Ok);
    REQUIRE(aligner.on_frame(100'000'000, frame_of(0)) == Status::Ok);
    WindowPlan plan;
    CHECK(aligner.poll(0, plan) == Status::Again);
    REQUIRE(aligner.on_epoch(2, 110'000'000) == Status::Ok);
    REQUIRE(aligner.on_frame(133'000'000, frame_of(1)) == Status::Ok);
    REQUIRE(aligner.poll(0, plan) == Status::Ok);
    CHECK((plan.t1_ns == 110'000'000 && (plan.flags & sync::kEpoch) != 0 && plan.epoch == 1));
    REQUIRE(aligner.poll(0, plan) == Status::Ok);
    CHECK((plan.t0_ns == 110'000'000 && plan.t1_ns == 133'000'000 && plan.epoch == 2));
    CHECK(plan.flags == (sync::kTick | sync::kMissingVideo));
}

TEST_CASE("waiting frames can be given back at shutdown; a full queue refuses") {
    Aligner aligner(AlignerOptions{.present = {true, true, false}, .live = false});
    for (std::size_t i = 0; i < Aligner::kFrameQueue; ++i) {
        REQUIRE(aligner.on_frame(static_cast<std::int64_t>(i) * kPeriod_ns, frame_of(i)) == Status::Ok);
    }
    CHECK(aligner.on_frame(10'000'000'000, frame_of(0)) == Status::Full);
    sensor::Sample frame;
    std::size_t count = 0;
    while (aligner.drain_frame(frame) == Status::Ok) {
        CHECK(frame.sequence == count++);
    }
    CHECK(count == Aligner::kFrameQueue);
}

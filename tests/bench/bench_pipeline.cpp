// The whole pipeline on synthetic sensors in real time: how long from a closed window to its tokens, and whether the
// hot threads allocate. Owns the source, the arenas and the pipeline, as daemon.cpp does.
#include <poll.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "arena/heap.hpp"
#include "base/hot_path.hpp"
#include "percentile.hpp"
#include "pipeline.hpp"
#include "sensor/synthetic.hpp"
#include "tokens/packer.hpp"

using namespace perceptd;

namespace {

constexpr std::uint32_t kTokenSlots = 32;
constexpr std::size_t kSlicesMax = 256;
constexpr std::size_t kRowsMax = 512;

struct Arenas {
    explicit Arenas(const sensor::Offer& offer) : heap(arena::make_heap("memfd")) {
        const std::size_t patch_count =
            std::size_t{(offer.camera->width_px + tokens::kPatchPx - 1) / tokens::kPatchPx} *
            ((offer.camera->height_px + tokens::kPatchPx - 1) / tokens::kPatchPx);
        camera = make("camera", 16, sensor::camera_slot_bytes(*offer.camera));
        audio = make("audio", 64, sensor::audio_slot_bytes(*offer.audio));
        patches = make("patches", kTokenSlots, tokens::patch_block_bytes(patch_count));
        mel = make("mel", kTokenSlots, tokens::mel_block_bytes(kSlicesMax));
        motion = make("motion", kTokenSlots, tokens::motion_block_bytes(kRowsMax, kSlicesMax));
    }
    [[nodiscard]] StreamArenas borrow() const {
        return {camera.get(), audio.get(), patches.get(), mel.get(), motion.get()};
    }

    std::unique_ptr<arena::Heap> heap;
    std::unique_ptr<arena::Arena> camera, audio, patches, mel, motion;

private:
    std::unique_ptr<arena::Arena> make(const char* label, std::uint32_t slot_count, std::size_t slot_bytes) const {
        return std::make_unique<arena::Arena>(*heap, arena::Arena::Options{label, slot_count, slot_bytes});
    }
};

std::vector<std::int64_t> take_windows(Pipeline& pipeline, const StreamArenas& arenas, std::int64_t seconds) {
    std::vector<std::int64_t> durations_ns;
    const std::int64_t end_ns = monotonic_ns() + seconds * kNsPerSecond;
    while (monotonic_ns() < end_ns) {
        pollfd ready{pipeline.ready_fd(), POLLIN, 0};
        ::poll(&ready, 1, 100);
        WindowRecord record;
        while (pipeline.pop(record)) {
            durations_ns.push_back(record.tokens_took_ns);
            release(record, arenas);
            if (durations_ns.size() % 100 == 0) {
                std::cerr << durations_ns.size() << " windows\n";
            }
        }
    }
    return durations_ns;
}

}  // namespace

int main(int argc, char** argv) {
    const long seconds = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 20;
    sensor::SyntheticSource source(sensor::SyntheticOptions{});  // 848x480 at 30 Hz, 10 ms of sound, 200 Hz
    const Arenas arenas(source.offer());
    PipelineOptions options;
    options.arenas = arenas.borrow();
    options.imu_on = true;
    std::vector<std::int64_t> durations_ns;
    std::uint64_t blocks_lost_count = 0;
    {
        Pipeline pipeline({&source}, options);
        durations_ns = take_windows(pipeline, options.arenas, seconds);
        blocks_lost_count = pipeline.counters().blocks_lost_count;
    }
    const nlohmann::json result{{"window_to_tokens_us",
                                 {{"p50", bench::percentile_us(durations_ns, 0.50)},
                                  {"p99", bench::percentile_us(durations_ns, 0.99)},
                                  {"max", bench::percentile_us(durations_ns, 1.0)}}},
                                {"hot_path_allocations", hot_path::allocation_count()},
                                {"windows", durations_ns.size()},
                                {"blocks_lost", blocks_lost_count}};
    std::cout << result.dump() << '\n';
    return durations_ns.empty() ? 1 : 0;
}

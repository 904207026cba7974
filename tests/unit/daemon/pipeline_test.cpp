// Pipeline: two sources at once make whole windows, a mark keeps a silent stream from holding up the others, and every
// lease comes back.
#include "pipeline.hpp"

#include <poll.h>

#include <catch2/catch.hpp>
#include <chrono>

#include "arena/heap.hpp"
#include "sensor/synthetic.hpp"
#include "tokens/packer.hpp"

using namespace perceptd;
using sensor::Kind;

namespace {

struct Memory {
    std::unique_ptr<arena::Heap> heap = arena::make_heap("memfd");
    arena::Arena camera;
    arena::Arena patches{*heap, {.label = "patches", .slot_count = 16, .slot_bytes = tokens::patch_block_bytes(100)}};
    arena::Arena audio{*heap, {.label = "audio", .slot_count = 256, .slot_bytes = 8192}};
    arena::Arena mel{*heap, {.label = "mel", .slot_count = 16, .slot_bytes = tokens::mel_block_bytes(500)}};
    arena::Arena motion{*heap,
                        {.label = "motion", .slot_count = 16, .slot_bytes = tokens::motion_block_bytes(900, 500)}};

    Memory() : camera(*heap, {.label = "camera", .slot_count = 16, .slot_bytes = 64 * 64 * 3 / 2}) {}
    StreamArenas arenas() { return {&camera, &audio, &patches, &mel, &motion}; }
    bool all_free() const {
        for (const arena::Arena* const arena : {&camera, &patches, &audio, &mel, &motion}) {
            if (arena->free_count() != arena->slot_count()) {
                return false;
            }
        }
        return true;
    }
};

/// Windows up to the last one; every lease is released.
std::vector<WindowRecord> run(Pipeline& pipeline, const StreamArenas& arenas, std::vector<std::uint32_t>& rows) {
    std::vector<WindowRecord> windows;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while ((windows.empty() || !windows.back().plan.last) && std::chrono::steady_clock::now() < end) {
        pollfd ready{pipeline.ready_fd(), POLLIN, 0};
        ::poll(&ready, 1, 100);
        WindowRecord record;
        while (pipeline.pop(record)) {
            if (record.motion.size_bytes > 0) {
                percept_motion_block block;
                const auto bytes = arenas.motion->slot(record.motion.slot.slot_index);
                std::memcpy(&block, bytes.data(), sizeof(block));
                for (std::uint32_t i = 0; i < block.row_count; ++i) {
                    percept_imu_row row;
                    std::memcpy(&row, bytes.data() + sizeof(block) + i * sizeof(row), sizeof(row));
                    if ((row.flags & PERCEPT_IMU_NEIGHBOUR) == 0) {
                        rows.push_back(static_cast<std::uint32_t>(row.row_index));
                    }
                }
            }
            windows.push_back(record);
            release(record, arenas);
        }
    }
    return windows;
}

}  // namespace

TEST_CASE("camera of one source, sound and motion of another: whole windows, every row once") {
    Memory memory;
    sensor::SyntheticOptions seen{
        .pace = sensor::Pace::Fast, .duration_ns = kNsPerSecond, .hub_start_ns = kNsPerSecond};
    sensor::SyntheticOptions felt = seen;
    seen.camera = sensor::SyntheticCamera{
        .width_px = 64, .height_px = 64, .rate_hz = 25, .clock = {.kind = sensor::StampKind::Identity}};
    seen.microphone.reset();
    seen.imu.reset();
    felt.camera.reset();
    felt.microphone = sensor::SyntheticMicrophone{.clock = {.kind = sensor::StampKind::Identity}};
    felt.imu = sensor::SyntheticImu{.clock = {.kind = sensor::StampKind::Identity}};
    sensor::SyntheticSource eye(seen);
    sensor::SyntheticSource body(felt);
    {
        Pipeline pipeline({&eye, &body},
                          {.arenas = memory.arenas(), .imu_on = true, .longest_window_ns = kNsPerSecond});
        CHECK_FALSE(pipeline.is_live());
        std::vector<std::uint32_t> rows;
        const auto windows = run(pipeline, memory.arenas(), rows);
        std::size_t frame_count = 0;
        for (const WindowRecord& window : windows) {
            if (window.plan.has_frame) {
                ++frame_count;
                CHECK(window.sound_count >= 4);  // 40 ms of blocks of 10 ms
                CHECK(window.sound_count <= 6);
            }
        }
        CHECK(frame_count == 25);
        REQUIRE(rows.size() == 200);
        for (std::uint32_t i = 0; i < 200; ++i) {
            REQUIRE(rows[i] == i);
        }
        const PipelineCounters& counters = pipeline.counters();
        CHECK(counters.window_to_tokens.count() == windows.size());
        CHECK(counters.mel_slices_lost_count + counters.imu_rows_lost_count + counters.sound_blocks_lost_count == 0);
        CHECK(counters.camera_copied_bytes == 0);
    }
    CHECK(memory.all_free());
}

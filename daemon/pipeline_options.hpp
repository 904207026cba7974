// What a pipeline is made with. Owns nothing. Never changes while the pipeline runs, but for the deadline, which the
// pipeline takes over by itself.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "tokens/mel.hpp"
#include "tokens/patches.hpp"
#include "window_record.hpp"

namespace perceptd {

struct PipelineOptions {
    StreamArenas arenas;
    bool imu_on = false;
    tokens::MelProfile mel_profile = tokens::MelProfile::Kaldi;
    tokens::PatchGateOptions patch_gate;
    std::int64_t deadline_ns = 20 * kNsPerMs;
    std::int64_t longest_window_ns = 200 * kNsPerMs;
    std::uint64_t first_window_id = 0;
    int fifo_priority = 0;
};

}  // namespace perceptd

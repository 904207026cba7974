// What the pipeline thread has done since it began. Written by that thread alone, read by any.
// Owns nothing.
// Never reset: a new pipeline has new counters.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/latency_histogram.hpp"

namespace perceptd {

struct PipelineCounters {
    std::atomic<std::uint64_t> heartbeat_count{0};  ///< wake-ups: at least ten a second while the thread is well
    std::atomic<std::uint64_t> windows_count{0};
    std::atomic<std::uint64_t> windows_lost_count{0};  ///< nobody took them from the ring in time
    std::atomic<std::uint64_t> blocks_lost_count{0};   ///< no free token slot
    std::atomic<std::uint64_t> mel_slices_lost_count{0};
    std::atomic<std::uint64_t> imu_rows_lost_count{0};
    std::atomic<std::uint64_t> sound_blocks_lost_count{0};  ///< let go before their window closed: the arena is small
    /// Camera bytes copied in user space after the slot was filled: whoever adds such a copy adds to this.
    std::atomic<std::uint64_t> camera_copied_bytes{0};
    std::atomic<std::uint64_t> gate_reference_bytes{0};
    std::atomic<std::int64_t> window_to_tokens_max_ns{0};
    LatencyHistogram window_to_tokens;  ///< WindowRecord::tokens_took_ns of every window
};

}  // namespace perceptd

// What the machine itself can do, measured in the same run as what is judged by it: memory read bandwidth, the peak of
// exact int8 arithmetic, and whether two processors are siblings of one core. Used by the engine's benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/huge_buffer.hpp"
#include "engine/worker_team.hpp"

namespace perceptd::bench {

/// Reads `buffer` once with all workers of `team`, each its own part; bytes per second / 1e9.
double read_gbps(engine::WorkerTeam& team, const engine::HugeBuffer& buffer);

/// Exact int8 multiply-adds (u8 * s8 into int32) of all workers from registers; operations (2 per multiply-add) per
/// second / 1e9. 0 where the instruction set has no yardstick.
double int8_peak_gops(engine::WorkerTeam& team);

/// Median round trip of two threads that spin on shared words, microseconds. Below 0.3 the two are siblings of one
/// core.
double spin_pingpong_us(int first_cpu, int second_cpu);

/// The middle of `values` (sorted by the call).
double median(std::vector<double>& values);

}  // namespace perceptd::bench

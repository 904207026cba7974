// What a source hands on: fixed-size records that name slots and stamps, never bytes.
#pragma once

#include <array>
#include <cstdint>

#include "arena/arena.hpp"

namespace perceptd::sensor {

enum class Kind : std::uint8_t { Camera = 1, Microphone = 2, Imu = 3 };
inline constexpr std::size_t kKindCount = 3;
inline constexpr std::array<Kind, kKindCount> kKinds{Kind::Camera, Kind::Microphone, Kind::Imu};
constexpr std::size_t index_of(Kind kind) noexcept {
    return static_cast<std::size_t>(kind) - 1;
}

/// How the pair {sensor_ns, hub_ns} was made (algorithms.md section 1).
enum class StampKind : std::uint8_t {
    Identity,  ///< sensor_ns is hub time plus a constant: a recording; no estimation
    Latched,   ///< one edge captured in both counters; symmetric noise
    OneWay,    ///< hub stamp = event + a delay >= minimum; one-sided noise
};

struct CameraFormat {
    std::uint32_t width_px = 0;
    std::uint32_t height_px = 0;
    std::uint32_t stride_bytes = 0;  ///< NV12: luma rows, then height/2 chroma rows
    double rate_hz = 0;              ///< nominal
};
struct AudioFormat {
    std::uint32_t rate_hz = 0;
    std::uint32_t channel_count = 0;
    std::uint32_t block_frames = 0;  ///< original frames per slot at most
};
struct ImuFormat {
    double rate_hz = 0;
};

/// kMark: no sample, but the promise that none of its stream before hub_ns will come.
enum SampleFlag : std::uint32_t { kGap = 1, kEnd = 2, kMark = 4 };

/// One record of any stream. For Camera and Microphone the slot's lease count travels with it (Lease::detach).
/// kEnd: the stream is over. kEnd and kMark: only `kind` and `hub_ns` count then.
struct Sample {
    Kind kind = Kind::Camera;
    std::uint32_t flags = 0;
    std::uint32_t imu_flags = 0;  ///< PERCEPT_IMU_*
    std::uint32_t bytes_used = 0;
    arena::SlotRef slot;
    std::int64_t sensor_ns = 0;  ///< sensor's clock; camera: exposure midpoint; audio: first frame of the block
    std::int64_t hub_ns = 0;     ///< the paired stamp on CLOCK_MONOTONIC
    std::uint64_t sequence = 0;  ///< from 0, per stream
    std::array<float, 3> accel_mps2{};
    std::array<float, 3> gyro_radps{};
};

}  // namespace perceptd::sensor

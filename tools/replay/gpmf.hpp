// Parser of GoPro's GPMF telemetry (key, length, value; big endian): the inertial rows of one packet.
// Owns nothing: reads the caller's bytes and returns values.
// Never trusts a length, recurses without a limit or reads outside the packet.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "recording.hpp"

namespace perceptd::replay {

/// Scaled samples of one packet in time order, axes X, Y, Z.
struct GpmfPacket {
    std::vector<std::array<float, 3>> accel_mps2;
    std::vector<std::array<float, 3>> gyro_radps;
};

/// Parses one packet. ACCL and GYRO of the first stream that holds each are taken; ORIN names the axis of each channel
/// (lower case = inverted). Without ORIN the order is Z, X, Y, as documented for cameras that do not write it. ORIO
/// (the order GoPro's own tools print) is not needed: rows always come out as X, Y, Z. Throws RecordingError with the
/// reason and byte offset.
[[nodiscard]] GpmfPacket parse_gpmf(std::span<const std::uint8_t> bytes);

/// Appends the packet's rows, spread evenly over [start_ns, start_ns + duration_ns). Where gyro and accelerometer
/// counts differ, the gyro is interpolated at the accelerometer's instants.
void append_rows(const GpmfPacket& packet, std::int64_t start_ns, std::int64_t duration_ns, std::vector<ImuRow>& rows);

}  // namespace perceptd::replay

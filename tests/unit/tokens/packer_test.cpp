#include "tokens/packer.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace perceptd;
using namespace perceptd::tokens;

namespace {

constexpr std::byte kGuard{0xa5};

template <typename T>
T take(const std::vector<std::byte>& bytes, std::size_t offset) {
    REQUIRE(offset + sizeof(T) <= bytes.size());
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

// Calls `pack` with every length up to the needed one, at an odd address, and checks that a short span stays as it was.
template <typename Pack>
std::vector<std::byte> pack_at_every_length(std::size_t needed, Pack pack) {
    std::vector<std::byte> memory(needed + 64, kGuard);
    for (std::size_t length = 0; length < needed; ++length) {
        const PackResult result = pack(std::span(memory).subspan(1, length));
        REQUIRE(result.status == Status::Full);
        REQUIRE(result.bytes == needed);
    }
    REQUIRE(memory == std::vector<std::byte>(needed + 64, kGuard));
    const PackResult result = pack(std::span(memory).subspan(1, needed + 8));
    REQUIRE(result.status == Status::Ok);
    REQUIRE(result.bytes == needed);
    for (std::size_t i = needed + 1; i < memory.size(); ++i) {
        REQUIRE(memory[i] == kGuard);
    }
    return {memory.begin() + 1, memory.begin() + 1 + static_cast<std::ptrdiff_t>(needed)};
}

}  // namespace

TEST_CASE("patch block") {
    PatchGate gate(64, 32);
    std::vector<percept_patch> patches(gate.patch_total());
    const std::vector<std::uint8_t> pixels(64 * 32, 50);
    const PatchFrame frame = gate.process({pixels.data(), 64, 32, 64}, patches);
    const auto bytes = pack_at_every_length(
        48 + 8 * 12, [&](std::span<std::byte> out) { return pack_patches(out, gate.block_of(frame, 77), patches); });
    const auto header = take<percept_patch_block>(bytes, 0);
    CHECK(header.magic == PERCEPT_PATCH_MAGIC);
    CHECK(header.patch_count == 8);
    CHECK(header.window_id == 77);
    CHECK(header.column_count == 4);
    CHECK(header.row_count == 2);
    CHECK(header.intra == 1);
    CHECK(header.threshold == Approx(1.3F * gate.tau(0)));
    CHECK(take<percept_patch>(bytes, 48 + 7 * 12).column == 3);
    CHECK(take<percept_patch>(bytes, 48 + 7 * 12).row == 1);

    std::vector<std::byte> room(1000);
    CHECK(pack_patches(room, gate.block_of(frame, 1), std::span(patches).first(7)).status == Status::Invalid);
    patches[2].column = 4;
    CHECK(pack_patches(room, gate.block_of(frame, 1), patches).status == Status::Invalid);
}

TEST_CASE("mel block") {
    std::vector<percept_mel_slice> slices(3);
    for (std::size_t i = 0; i < 3; ++i) {
        slices[i].slice_index = 10 + i;
        slices[i].bins[79] = float(i);
    }
    const auto bytes = pack_at_every_length(32 + 3 * 336, [&](std::span<std::byte> out) {
        return pack_mel(out, 5, MelProfile::WhisperStream, {-20.0F, 4}, slices);
    });
    const auto header = take<percept_mel_block>(bytes, 0);
    CHECK(header.magic == PERCEPT_MEL_MAGIC);
    CHECK(header.slice_count == 3);
    CHECK(header.profile == PERCEPT_MEL_WHISPER_STREAM);
    CHECK(header.bin_count == 80);
    CHECK(header.level_dbfs == -20.0F);
    CHECK(header.clipped_count == 4);
    CHECK(take<percept_mel_slice>(bytes, 32 + 2 * 336).bins[79] == 2.0F);

    std::vector<std::byte> room(32);
    CHECK(pack_mel(room, 5, MelProfile::Kaldi, {}, {}).bytes == 32);
    slices[1].slice_index = 10;
    CHECK(pack_mel(room, 5, MelProfile::Kaldi, {}, slices).status == Status::Invalid);
}

TEST_CASE("motion block: rows come out clean") {
    std::vector<percept_imu_row> rows(2);
    rows[0].flags = PERCEPT_IMU_ACCEL | PERCEPT_IMU_GYRO | PERCEPT_IMU_NEIGHBOUR;
    rows[0].accel_mps2[1] = std::numeric_limits<float>::quiet_NaN();
    rows[0].gyro_radps[0] = 1.0F;
    rows[1].flags = PERCEPT_IMU_ACCEL;
    rows[1].accel_mps2[0] = -500.0F;
    std::vector<percept_motion_feature> features(1);
    features[0].time_ns = 123;
    MotionSummary summary;
    summary.feature_count = 1;
    summary.state = MotionState::Turn;
    summary.rotation_rad = {1, 2, 3};
    const auto bytes = pack_at_every_length(
        40 + 2 * 56 + 48, [&](std::span<std::byte> out) { return pack_motion(out, 9, summary, rows, features); });
    const auto header = take<percept_motion_block>(bytes, 0);
    CHECK(header.magic == PERCEPT_MOTION_MAGIC);
    CHECK(header.row_count == 2);
    CHECK(header.feature_count == 1);
    CHECK(header.state == 3);
    CHECK(std::isnan(header.cadence_hz));
    CHECK(header.rotation_rad[2] == 3.0F);
    const auto first = take<percept_imu_row>(bytes, 40);
    CHECK(first.flags == (PERCEPT_IMU_GYRO | PERCEPT_IMU_NEIGHBOUR));
    CHECK(first.accel_mps2[1] == 0.0F);
    CHECK(first.gyro_radps[0] == 1.0F);
    CHECK(take<percept_imu_row>(bytes, 96).flags == (PERCEPT_IMU_ACCEL | PERCEPT_IMU_SATURATED));
    CHECK(take<percept_motion_feature>(bytes, 152).time_ns == 123);

    std::vector<std::byte> room(1000);
    summary.feature_count = 2;
    CHECK(pack_motion(room, 9, summary, rows, features).status == Status::Invalid);
}

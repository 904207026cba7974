#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numbers>
#include <random>
#include <string>

#include "cadence.hpp"
#include "gpmf.hpp"

using namespace perceptd;
using namespace perceptd::replay;

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes item(const char* key, char type, std::size_t struct_bytes, std::size_t count, Bytes value) {
    // Built from a string: GCC 12 warns wrongly about a vector that grows from four bytes.
    std::string header(key);
    for (const std::size_t byte : {std::size_t(type), struct_bytes, count >> 8, count}) {
        header.push_back(char(byte));
    }
    Bytes bytes(header.begin(), header.end());
    value.resize((value.size() + 3) / 4 * 4);
    bytes.insert(bytes.end(), value.begin(), value.end());
    return bytes;
}

Bytes nested(const char* key, const std::vector<Bytes>& items) {
    Bytes value;
    for (const Bytes& one : items) {
        value.insert(value.end(), one.begin(), one.end());
    }
    return item(key, 0, 1, value.size(), value);
}

Bytes shorts(const std::vector<int>& values) {
    Bytes bytes;
    for (const int value : values) {
        bytes.push_back(std::uint8_t(value >> 8));
        bytes.push_back(std::uint8_t(value));
    }
    return bytes;
}

Bytes text(const char* characters) {
    return Bytes(characters, characters + std::strlen(characters));
}

Bytes scale(int value) {
    return item("SCAL", 's', 2, 1, shorts({value}));
}
Bytes samples(const char* key, const std::vector<int>& values) {
    return item(key, 's', 6, values.size() / 3, shorts(values));
}

Bytes good_packet() {
    return nested("DEVC", {item("DVNM", 'c', 1, 4, text("Test")),
                           nested("STRM", {item("ORIN", 'c', 3, 1, text("XzY")), item("ORIO", 'c', 1, 3, text("ZXY")),
                                           scale(10), samples("ACCL", {10, 20, 30, 40, -50, 60})}),
                           nested("STRM", {scale(100), samples("GYRO", {100, 200, 300, 400, 500, 600})})});
}

}  // namespace

TEST_CASE("GPMF: ORIN names the axes, lower case inverts, the default is Z, X, Y") {
    const GpmfPacket packet = parse_gpmf(good_packet());
    REQUIRE(packet.accel_mps2.size() == 2);
    CHECK(packet.accel_mps2[0] == std::array<float, 3>{1, 3, -2});
    CHECK(packet.accel_mps2[1] == std::array<float, 3>{4, 6, 5});
    REQUIRE(packet.gyro_radps.size() == 2);
    CHECK(packet.gyro_radps[0] == std::array<float, 3>{2, 3, 1});
}

TEST_CASE("GPMF: one divisor per channel follows the channel, not the axis") {
    const Bytes packet = nested(
        "DEVC", {nested("STRM", {item("SCAL", 's', 2, 3, shorts({1, 10, 100})), samples("ACCL", {100, 100, 100})})});
    CHECK(parse_gpmf(packet).accel_mps2.at(0) == std::array<float, 3>{10, 1, 100});
}

TEST_CASE("GPMF: rows are spread evenly over the packet and a missing part is flagged") {
    std::vector<ImuRow> rows;
    append_rows(parse_gpmf(good_packet()), 1000, 500, rows);
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].time_ns == 1000);
    CHECK(rows[1].time_ns == 1250);
    CHECK((rows[0].has_accel && rows[0].has_gyro));

    rows.clear();
    append_rows(GpmfPacket{{}, {{1, 2, 3}}}, 0, 10, rows);
    REQUIRE(rows.size() == 1);
    CHECK_FALSE(rows[0].has_accel);
    CHECK(rows[0].gyro_radps[2] == 3);
}

TEST_CASE("GPMF: a gyro at half the rate is interpolated") {
    std::vector<ImuRow> rows;
    append_rows(GpmfPacket{{{}, {}, {}, {}}, {{0, 0, 0}, {2, 0, 0}}}, 0, 40, rows);
    REQUIRE(rows.size() == 4);
    CHECK(rows[1].gyro_radps[0] == 1);
    CHECK(rows[3].gyro_radps[0] == 2);
}

TEST_CASE("GPMF: broken packets are refused with a reason") {
    const Bytes bad_scale = nested("DEVC", {nested("STRM", {scale(0), samples("ACCL", {1, 2, 3})})});
    const Bytes no_scale = nested("DEVC", {nested("STRM", {samples("ACCL", {1, 2, 3})})});
    const Bytes bad_axes = nested("DEVC", {nested("STRM", {item("ORIN", 'c', 1, 3, text("XXY"))})});
    const Bytes bad_type = nested("DEVC", {nested("STRM", {scale(1), item("GYRO", 's', 2, 1, shorts({1}))})});
    const Bytes too_long = item("DEVC", 0, 1, 60000, {});
    for (const Bytes& packet : {bad_scale, no_scale, bad_axes, bad_type, too_long}) {
        CHECK_THROWS_AS(parse_gpmf(packet), RecordingError);
    }
    Bytes deep;
    for (int depth = 0; depth < 1000; ++depth) {
        deep = nested("DEVC", {deep});
        if (deep.size() > 60000) {
            break;
        }
    }
    CHECK_THROWS_WITH(parse_gpmf(deep), Catch::Contains("nested too deeply"));
}

TEST_CASE("GPMF: every truncation and random damage end in rows or an error") {
    const Bytes good = good_packet();
    for (std::size_t size = 1; size < good.size(); ++size) {
        const Bytes cut(good.begin(), good.begin() + std::ptrdiff_t(size));  // own allocation: overreads are seen
        CHECK_THROWS_AS(parse_gpmf(cut), RecordingError);
    }
    std::mt19937 random(1);
    const auto survive = [](const Bytes& packet) {
        try {
            for (const auto& row : parse_gpmf(packet).accel_mps2) {
                REQUIRE(std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); }));
            }
        } catch (const RecordingError&) {
        }
    };
    for (int round = 0; round < 20000; ++round) {
        Bytes damaged = good;
        for (unsigned i = 0; i <= random() % 4; ++i) {
            damaged[random() % damaged.size()] = std::uint8_t(random());
        }
        survive(damaged);
        Bytes noise(random() % 200);
        std::generate(noise.begin(), noise.end(), [&] { return std::uint8_t(random()); });
        survive(noise);
    }
    CHECK(parse_gpmf({}).accel_mps2.empty());
}

TEST_CASE("cadence: finds a tone in unevenly spaced samples, nothing in a constant") {
    std::vector<AccelMagnitude> tone, flat;
    std::mt19937 random(2);
    for (int i = 0; i < 1000; ++i) {
        const std::int64_t time_ns = i * 10'000'000LL + std::int64_t(random() % 4'000'000);
        tone.push_back({time_ns, 9.81 + std::sin(2 * std::numbers::pi * 1.83 * double(time_ns) * 1e-9)});
        flat.push_back({time_ns, 9.81});
    }
    CHECK(step_cadence_hz(tone).value() == Approx(1.83).margin(0.015));
    CHECK_FALSE(step_cadence_hz(flat));
    CHECK_FALSE(step_cadence_hz(std::span(tone).first(100)));
}

// The 16-point grid search and the three planes of a row. The scale is rounded to fp16 before codes are chosen, so
// that what is minimised is the error of what is stored.
#include "model/int4.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "model/blocks.hpp"

namespace perceptd::model {
namespace {

constexpr int kMaxCode = 15;
constexpr std::size_t kMaxGroup = 128;

std::uint8_t nibble_at(std::span<const std::byte> plane, std::size_t index) noexcept {
    const auto byte = std::to_integer<unsigned>(plane[index / 2]);
    return static_cast<std::uint8_t>(index % 2 == 0 ? byte & 0xfU : byte >> 4);
}

void put_nibble(std::span<std::byte> plane, std::size_t index, std::uint8_t value) noexcept {
    plane[index / 2] |= static_cast<std::byte>(index % 2 == 0 ? value : value << 4);
}

std::uint8_t clamped_code(double value) noexcept {
    return static_cast<std::uint8_t>(std::clamp(value, 0.0, static_cast<double>(kMaxCode)));
}

struct Planes {
    std::size_t scales;  // offset in bytes
    std::size_t zeros;
};

Planes planes_of(std::size_t columns, std::size_t group) noexcept {
    const std::size_t scales = columns / 2 + columns % 2;
    return {scales, scales + 2 * (columns / group + (columns % group != 0 ? 1 : 0))};
}

/// Chooses the codes for one point of the grid; the weighted squared error.
double try_point(std::span<const float> weights, std::span<const float> importance, double scale, int zero,
                 std::span<std::uint8_t> codes) noexcept {
    double error = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const double weight = static_cast<double>(weights[i]);
        codes[i] = clamped_code(std::nearbyint(weight / scale) + zero);
        const double rest = weight - scale * (codes[i] - zero);
        error += (importance.empty() ? 1.0 : static_cast<double>(importance[i])) * rest * rest;
    }
    return error;
}

}  // namespace

Int4Group encode_int4_group(std::span<const float> weights, std::span<const float> importance,
                            std::span<std::uint8_t> codes) noexcept {
    constexpr int kScaleSteps = 8;
    double low = 0;
    double high = 0;
    for (const float weight : weights) {
        low = std::min(low, static_cast<double>(weight));
        high = std::max(high, static_cast<double>(weight));
    }
    std::fill(codes.begin(), codes.end(), std::uint8_t{0});
    Int4Group best;
    double best_error = std::numeric_limits<double>::infinity();
    std::array<std::uint8_t, kMaxGroup> tried{};
    const auto candidate = std::span(tried).first(codes.size());
    for (int step = 0; step < kScaleSteps; ++step) {
        const double wanted = (high - low) / kMaxCode * (32 - step) / 32;
        const float scale = decode_f16(encode_f16(static_cast<float>(wanted)));
        if (scale == 0) {
            continue;
        }
        for (const double zero :
             {std::floor(-low / static_cast<double>(scale)), std::ceil(-low / static_cast<double>(scale))}) {
            const std::uint8_t clamped = clamped_code(zero);
            const double error = try_point(weights, importance, static_cast<double>(scale), clamped, candidate);
            if (error < best_error) {
                best_error = error;
                best = {scale, clamped};
                std::copy(candidate.begin(), candidate.end(), codes.begin());
            }
        }
    }
    return best;
}

void encode_int4_row(std::span<const float> weights, std::span<const float> importance, std::size_t group,
                     std::span<std::byte> row) noexcept {
    const Planes planes = planes_of(weights.size(), group);
    std::fill(row.begin(), row.end(), std::byte{0});
    std::array<std::uint8_t, kMaxGroup> codes{};
    for (std::size_t first = 0, index = 0; first < weights.size(); first += group, ++index) {
        const std::size_t count = std::min(group, weights.size() - first);
        const auto weight = importance.empty() ? importance : importance.subspan(first, count);
        const Int4Group stored =
            encode_int4_group(weights.subspan(first, count), weight, std::span(codes).first(count));
        for (std::size_t i = 0; i < count; ++i) {
            put_nibble(row, first + i, codes[i]);
        }
        store_u16(row.subspan(planes.scales + 2 * index), encode_f16(stored.scale));
        put_nibble(row.subspan(planes.zeros), index, stored.zero);
    }
}

Int4Group int4_group_of(std::span<const std::byte> row, std::size_t columns, std::size_t group,
                        std::size_t index) noexcept {
    const Planes planes = planes_of(columns, group);
    return {decode_f16(load_u16(row.subspan(planes.scales + 2 * index))), nibble_at(row.subspan(planes.zeros), index)};
}

void decode_int4_row(std::span<const std::byte> row, std::size_t group, std::span<float> weights) noexcept {
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const Int4Group stored = int4_group_of(row, weights.size(), group, i / group);
        weights[i] = stored.scale * static_cast<float>(nibble_at(row, i) - stored.zero);
    }
}

}  // namespace perceptd::model

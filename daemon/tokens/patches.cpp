#include "tokens/patches.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.hpp"

namespace perceptd::tokens {
namespace {

// Inverse of the normal distribution by bisection on erfc: set-up only, exact to double.
double normal_quantile(double q) noexcept {
    double low = -40;
    double high = 40;
    for (int i = 0; i < 200; ++i) {
        const double middle = 0.5 * (low + high);
        // Both tails through erfc of a positive argument keep full precision near 0 and 1.
        const bool below = 0.5 * std::erfc(-middle / std::sqrt(2.0)) < q;
        (below ? low : high) = middle;
    }
    return 0.5 * (low + high);
}

std::uint32_t distance_sq_of(const std::uint8_t* pixels, std::size_t stride, const std::uint8_t* reference,
                             std::size_t reference_stride, std::uint32_t width, std::uint32_t height) noexcept {
    std::uint32_t sum = 0;  // at most 256 * 255^2 < 2^24: exact
    for (std::uint32_t y = 0; y < height; ++y) {
        for (std::uint32_t x = 0; x < width; ++x) {
            const int difference = static_cast<int>(pixels[x]) - static_cast<int>(reference[x]);
            sum += static_cast<std::uint32_t>(difference * difference);
        }
        pixels += stride;
        reference += reference_stride;
    }
    return sum;
}

std::uint32_t full_distance_sq_of(const std::uint8_t* pixels, std::size_t stride, const std::uint8_t* reference,
                                  std::size_t reference_stride) noexcept {
    std::uint32_t sum = 0;
    for (std::uint32_t y = 0; y < kPatchPx; ++y) {
        for (std::uint32_t x = 0; x < kPatchPx; ++x) {
            const int difference = static_cast<int>(pixels[x]) - static_cast<int>(reference[x]);
            sum += static_cast<std::uint32_t>(difference * difference);
        }
        pixels += stride;
        reference += reference_stride;
    }
    return sum;
}

std::uint32_t sum_of(const std::uint8_t* pixels, std::size_t stride, std::uint32_t width,
                     std::uint32_t height) noexcept {
    std::uint32_t sum = 0;
    for (std::uint32_t y = 0; y < height; ++y, pixels += stride) {
        for (std::uint32_t x = 0; x < width; ++x) {
            sum += pixels[x];
        }
    }
    return sum;
}

std::uint32_t full_sum_of(const std::uint8_t* pixels, std::size_t stride) noexcept {
    // Four 16-bit sums in one word: 16 rows add at most 16 * 4 * 255 to each.
    constexpr std::uint64_t kEvenBytes = 0x00ff'00ff'00ff'00ff;
    std::uint64_t sums = 0;
    for (std::uint32_t y = 0; y < kPatchPx; ++y, pixels += stride) {
        std::array<std::uint64_t, kPatchPx / sizeof(std::uint64_t)> words;
        std::memcpy(words.data(), pixels, kPatchPx);
        for (const std::uint64_t word : words) {
            sums += (word & kEvenBytes) + ((word >> 8) & kEvenBytes);
        }
    }
    std::uint32_t sum = 0;
    for (; sums != 0; sums >>= 16) {
        sum += static_cast<std::uint32_t>(sums & 0xffff);
    }
    return sum;
}

void check(std::uint32_t width_px, std::uint32_t height_px, const PatchGateOptions& options) {
    const auto require = [](bool good, const char* reason) {
        if (!good) {
            throw Error(ErrorCode::InvalidArgument, reason);
        }
    };
    require(width_px > 0 && height_px > 0 && width_px <= 65535 && height_px <= 65535,
            "patch gate: the frame must be 1..65535 px wide and high");
    require(options.noise_gain >= 0 && options.noise_floor > 0 && std::isfinite(options.noise_gain) &&
                std::isfinite(options.noise_floor),
            "patch gate: noise_gain must be >= 0 and noise_floor > 0");
    require(options.false_alarm_rate > 0 && options.false_alarm_rate < 1,
            "patch gate: false_alarm_rate must be between 0 and 1");
    require(options.hysteresis >= 1 && std::isfinite(options.hysteresis), "patch gate: hysteresis must be >= 1");
    require(options.intra_fraction > 0 && options.intra_fraction <= 1, "patch gate: intra_fraction must be in (0, 1]");
    require(options.intra_interval_frames > 0, "patch gate: intra_interval_frames must be at least 1");
    require(options.max_age_frames > 0 && options.max_age_frames <= 65535,
            "patch gate: max_age_frames must be 1..65535");
}

}  // namespace

double chi_square_quantile(double q, double degrees) noexcept {
    const double spread = 2.0 / (9.0 * degrees);
    const double root = std::max(0.0, 1.0 - spread + normal_quantile(q) * std::sqrt(spread));
    return degrees * root * root * root;
}

PatchGate::PatchGate(std::uint32_t width_px, std::uint32_t height_px, const PatchGateOptions& options)
    : width_px_(width_px),
      height_px_(height_px),
      columns_((width_px + kPatchPx - 1) / kPatchPx),
      rows_((height_px + kPatchPx - 1) / kPatchPx),
      options_(options),
      wake_factor_sq_(options.hysteresis * options.hysteresis) {
    check(width_px, height_px, options);
    patches_.resize(std::size_t{columns_} * rows_);
    reference_.resize(patches_.size() * kPatchPx * kPatchPx);
    const std::uint32_t last_width = patch_width(columns_ - 1);
    const std::uint32_t last_height = patch_height(rows_ - 1);
    for (int bottom = 0; bottom < 2; ++bottom) {
        for (int right = 0; right < 2; ++right) {
            const double pixels =
                static_cast<double>(right != 0 ? last_width : kPatchPx) * (bottom != 0 ? last_height : kPatchPx);
            // The difference of two noisy patches has twice the sensor's variance.
            chi_square_[bottom][right] = 2.0 * chi_square_quantile(1.0 - options.false_alarm_rate, pixels);
        }
    }
    // Limits spread over the last quarter, or every patch would be refreshed in the same frame after an I frame.
    const std::uint32_t spread = options.max_age_frames / 4 + 1;
    for (std::size_t i = 0; i < patches_.size(); ++i) {
        const auto hash = static_cast<std::uint32_t>(i) * 2654435761u >> 8;
        patches_[i].age_limit = static_cast<std::uint16_t>(options.max_age_frames - hash % spread);
    }
}

std::uint32_t PatchGate::patch_width(std::uint32_t column) const noexcept {
    return std::min(kPatchPx, width_px_ - column * kPatchPx);
}

std::uint32_t PatchGate::patch_height(std::uint32_t row) const noexcept {
    return std::min(kPatchPx, height_px_ - row * kPatchPx);
}

float PatchGate::tau(std::uint32_t index) const noexcept {
    return index < patches_.size() ? static_cast<float>(std::sqrt(patches_[index].tau_sq)) : 0.0F;
}

std::uint32_t PatchGate::test_all(const LumaView& frame, PatchFrame& result) noexcept {
    std::uint32_t refreshed_count = 0;
    double largest_sq = 0;
    std::size_t index = 0;
    for (std::uint32_t row = 0; row < rows_; ++row) {
        const std::uint32_t height = patch_height(row);
        const std::uint8_t* line = frame.data + std::size_t{row} * kPatchPx * frame.stride_bytes;
        for (std::uint32_t column = 0; column < columns_; ++column, ++index) {
            Patch& patch = patches_[index];
            const std::uint32_t width = patch_width(column);
            const std::uint8_t* pixels = line + std::size_t{column} * kPatchPx;
            const std::uint8_t* reference = reference_at(column, row);
            const std::size_t stride = reference_stride();
            patch.distance_sq = width == kPatchPx && height == kPatchPx
                                    ? full_distance_sq_of(pixels, frame.stride_bytes, reference, stride)
                                    : distance_sq_of(pixels, frame.stride_bytes, reference, stride, width, height);
            const double limit_sq = patch.awake ? patch.tau_sq : patch.tau_sq * wake_factor_sq_;
            largest_sq = std::max(largest_sq, limit_sq);
            patch.reason = 0;
            if (patch.distance_sq > limit_sq) {
                patch.reason = PERCEPT_PATCH_CHANGED;
                ++result.changed_count;
            } else if (patch.age_frames + 1 >= patch.age_limit) {
                patch.reason = PERCEPT_PATCH_REFRESHED;
                ++refreshed_count;
            }
        }
    }
    result.threshold = static_cast<float>(std::sqrt(largest_sq));
    return refreshed_count;
}

void PatchGate::encode(const LumaView& frame, std::uint32_t row, std::uint32_t first, std::uint32_t end) noexcept {
    if (first == end) {
        return;
    }
    const std::uint32_t height = patch_height(row);
    const std::size_t bytes = std::min(width_px_, end * kPatchPx) - first * kPatchPx;
    const std::uint8_t* pixels =
        frame.data + std::size_t{row} * kPatchPx * frame.stride_bytes + std::size_t{first} * kPatchPx;
    std::uint8_t* reference = reference_at(first, row);
    for (std::uint32_t y = 0; y < height; ++y) {
        std::memcpy(reference + y * reference_stride(), pixels + y * frame.stride_bytes, bytes);
    }
    reference_bytes_written_ += std::uint64_t{bytes} * height;
    const bool bottom = row + 1 == rows_;
    for (std::uint32_t column = first; column < end; ++column) {
        const std::uint32_t width = patch_width(column);
        // The sum is taken from the copy: the frame may be shared memory.
        const std::uint8_t* const copy = reference_at(column, row);
        const std::uint32_t sum = width == kPatchPx && height == kPatchPx
                                      ? full_sum_of(copy, reference_stride())
                                      : sum_of(copy, reference_stride(), width, height);
        const double mean = static_cast<double>(sum) / (width * height);
        patches_[std::size_t{row} * columns_ + column].tau_sq =
            chi_square_[bottom ? 1 : 0][column + 1 == columns_ ? 1 : 0] *
            (options_.noise_gain * mean + options_.noise_floor);
    }
}

PatchFrame PatchGate::process(const LumaView& frame, std::span<percept_patch> out) noexcept {
    PatchFrame result;
    if (frame.data == nullptr || frame.width_px != width_px_ || frame.height_px != height_px_ ||
        frame.stride_bytes < width_px_) {
        result.status = Status::Invalid;
        return result;
    }
    std::uint32_t listed_count = 0;
    if (!first_) {
        listed_count = test_all(frame, result) + result.changed_count;
    }
    result.intra = intra_due_ || since_intra_frames_ + 1 >= options_.intra_interval_frames ||
                   result.changed_count > options_.intra_fraction * patch_total();
    if (result.intra) {
        listed_count = patch_total();
    }
    if (out.size() < listed_count) {
        return PatchFrame{.status = Status::Full, .patch_count = listed_count};
    }

    std::size_t index = 0;
    for (std::uint32_t row = 0; row < rows_; ++row) {
        std::uint32_t run_first = 0;  // neighbours that are listed are copied together
        for (std::uint32_t column = 0; column < columns_; ++column, ++index) {
            Patch& patch = patches_[index];
            patch.awake = (patch.reason & PERCEPT_PATCH_CHANGED) != 0;
            const auto age = static_cast<std::uint16_t>(std::min(patch.age_frames + 1, 65535));
            if (!result.intra && patch.reason == 0) {
                patch.age_frames = age;
                encode(frame, row, run_first, column);
                run_first = column + 1;
                continue;
            }
            percept_patch& entry = out[result.patch_count++];
            entry.column = static_cast<std::uint16_t>(column);
            entry.row = static_cast<std::uint16_t>(row);
            entry.reason =
                static_cast<std::uint16_t>(patch.reason | (result.intra ? unsigned{PERCEPT_PATCH_INTRA} : 0u));
            entry.age_frames = first_ ? std::uint16_t{0} : age;
            entry.distance = first_ ? 0.0F : std::sqrt(static_cast<float>(patch.distance_sq));
            patch.age_frames = 0;
        }
        encode(frame, row, run_first, columns_);
    }
    if (first_) {  // nothing was tested: state the thresholds that hold from now on
        double largest_sq = 0;
        for (const Patch& patch : patches_) {
            largest_sq = std::max(largest_sq, patch.tau_sq * wake_factor_sq_);
        }
        result.threshold = static_cast<float>(std::sqrt(largest_sq));
    }
    since_intra_frames_ = result.intra ? 0 : since_intra_frames_ + 1;
    intra_due_ = false;
    first_ = false;
    return result;
}

percept_patch_block PatchGate::block_of(const PatchFrame& frame, std::uint64_t window_id) const noexcept {
    percept_patch_block block{};
    block.magic = PERCEPT_PATCH_MAGIC;
    block.patch_count = frame.patch_count;
    block.window_id = window_id;
    block.width_px = width_px_;
    block.height_px = height_px_;
    block.patch_px = kPatchPx;
    block.column_count = columns_;
    block.row_count = rows_;
    block.intra = frame.intra ? 1u : 0u;
    block.threshold = frame.threshold;
    return block;
}

}  // namespace perceptd::tokens

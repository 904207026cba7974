#include "tokens/mel.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <numbers>

namespace perceptd::tokens {
namespace {

constexpr double kPeakRange = 8.0;                       // log10 units kept below the peak
constexpr double kPeakFallPerSlice = kPeakRange / 3000;  // the whole range in 30 s
constexpr std::uint32_t kHalfWindow = kMelWindowSamples / 2;

double kaldi_mel(double hz) noexcept {
    return 1127.0 * std::log(1.0 + hz / 700.0);
}

double slaney_mel(double hz) noexcept {
    return hz < 1000.0 ? hz * 3.0 / 200.0 : 15.0 + 27.0 * std::log(hz / 1000.0) / std::log(6.4);
}

double slaney_hz(double mel) noexcept {
    return mel < 15.0 ? mel * 200.0 / 3.0 : 1000.0 * std::exp((mel - 15.0) * std::log(6.4) / 27.0);
}

}  // namespace

AudioLevel level_of(std::span<const std::int16_t> samples) noexcept {
    AudioLevel level;
    std::uint64_t sum = 0;
    for (const std::int16_t sample : samples) {
        const auto value = static_cast<std::int64_t>(sample);
        sum += static_cast<std::uint64_t>(value * value);
        level.clipped_count += sample == INT16_MAX || sample == INT16_MIN ? 1u : 0u;
    }
    if (sum > 0) {
        const double mean = static_cast<double>(sum) / static_cast<double>(samples.size());
        level.level_dbfs = static_cast<float>(std::max(-200.0, 10.0 * std::log10(mean / (32768.0 * 32768.0))));
    }
    return level;
}

MelStream::MelStream(MelProfile profile)
    : profile_(profile), fft_(profile == MelProfile::Kaldi ? 512 : kMelWindowSamples) {
    frame_.resize(fft_.length());
    power_.resize(fft_.bin_count());
    if (profile_ == MelProfile::Kaldi) {
        build_kaldi();
    } else {
        build_whisper();
    }
    reset(0);
}

void MelStream::append_triangle(std::span<const double> weights_of_all_bins, std::uint32_t bin) {
    Triangle& triangle = triangles_[bin];
    triangle.offset = weights_.size();
    for (std::uint32_t i = 0; i < weights_of_all_bins.size(); ++i) {
        if (weights_of_all_bins[i] > 0) {
            if (triangle.bin_count == 0) {
                triangle.first_bin = i;
            }
            triangle.bin_count = i - triangle.first_bin + 1;
        }
    }
    const auto* first = weights_of_all_bins.data() + triangle.first_bin;
    weights_.insert(weights_.end(), first, first + triangle.bin_count);
}

void MelStream::build_kaldi() {
    for (std::uint32_t n = 0; n < kMelWindowSamples; ++n) {
        const double hann = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * n / (kMelWindowSamples - 1));
        window_[n] = std::pow(hann, 0.85);
    }
    const double low = kaldi_mel(20.0);
    const double step = (kaldi_mel(kMelRateHz / 2.0) - low) / (PERCEPT_MEL_BINS + 1);
    std::vector<double> weights(fft_.bin_count());
    for (std::uint32_t bin = 0; bin < PERCEPT_MEL_BINS; ++bin) {
        const double left = low + bin * step;
        const double centre = left + step;
        const double right = centre + step;
        std::fill(weights.begin(), weights.end(), 0.0);
        for (std::uint32_t i = 0; i + 1 < weights.size(); ++i) {  // the Nyquist bin is unused
            const double mel = kaldi_mel(static_cast<double>(kMelRateHz) / 512.0 * i);
            weights[i] = std::max(0.0, std::min((mel - left) / step, (right - mel) / step));
        }
        append_triangle(weights, bin);
    }
}

void MelStream::build_whisper() {
    for (std::uint32_t n = 0; n < kMelWindowSamples; ++n) {
        window_[n] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * n / kMelWindowSamples);
    }
    const double step = slaney_mel(kMelRateHz / 2.0) / (PERCEPT_MEL_BINS + 1);
    std::vector<double> weights(fft_.bin_count());
    for (std::uint32_t bin = 0; bin < PERCEPT_MEL_BINS; ++bin) {
        const double left = slaney_hz(bin * step);
        const double centre = slaney_hz((bin + 1) * step);
        const double right = slaney_hz((bin + 2) * step);
        const double norm = 2.0 / (right - left);
        for (std::uint32_t i = 0; i < weights.size(); ++i) {
            const double hz = static_cast<double>(kMelRateHz) / kMelWindowSamples * i;
            weights[i] = norm * std::max(0.0, std::min((hz - left) / (centre - left), (right - hz) / (right - centre)));
        }
        append_triangle(weights, bin);
    }
}

std::span<const double> MelStream::filter(std::uint32_t bin, std::uint32_t& first_bin) const noexcept {
    first_bin = triangles_[bin].first_bin;
    return std::span(weights_).subspan(triangles_[bin].offset, triangles_[bin].bin_count);
}

std::uint64_t MelStream::centre_sample(std::uint64_t slice_index) const noexcept {
    return slice_index * kMelHopSamples + (profile_ == MelProfile::Kaldi ? kHalfWindow : 0);
}

void MelStream::reset(std::uint64_t first_sample) noexcept {
    const std::uint64_t lead = profile_ == MelProfile::WhisperStream && first_sample > 0 ? kHalfWindow : 0;
    next_slice_ = (first_sample + lead + kMelHopSamples - 1) / kMelHopSamples;
    skip_samples_ = next_slice_ * kMelHopSamples - lead - first_sample;
    has_peak_ = false;
    mirrored_ = profile_ == MelProfile::WhisperStream && first_sample == 0;
    filled_ = mirrored_ ? kHalfWindow : 0;
    needed_ = mirrored_ ? kMelWindowSamples + 1 : kMelWindowSamples;
}

void MelStream::mirror_start() noexcept {
    for (std::uint32_t i = 1; i <= kHalfWindow; ++i) {
        samples_[kHalfWindow - i] = samples_[kHalfWindow + i];
    }
    mirrored_ = false;
    needed_ = kMelWindowSamples;
}

MelPush MelStream::push(std::span<const std::int16_t> samples, const SampleClock& clock,
                        std::span<percept_mel_slice> out) noexcept {
    MelPush result;
    while (true) {
        const std::size_t left = samples.size() - result.samples_consumed;
        if (skip_samples_ > 0) {
            const auto skipped = std::min<std::uint64_t>(skip_samples_, left);
            skip_samples_ -= skipped;
            result.samples_consumed += skipped;
            if (skip_samples_ > 0) {
                return result;
            }
            continue;
        }
        if (filled_ < needed_) {
            const std::size_t taken = std::min<std::size_t>(left, needed_ - filled_);
            std::copy_n(samples.begin() + static_cast<std::ptrdiff_t>(result.samples_consumed), taken,
                        samples_.begin() + filled_);
            filled_ += static_cast<std::uint32_t>(taken);
            result.samples_consumed += taken;
            if (filled_ < needed_) {
                return result;
            }
        }
        if (result.slice_count == out.size()) {
            result.status = Status::Full;
            return result;
        }
        if (mirrored_) {
            mirror_start();
        }
        percept_mel_slice& slice = out[result.slice_count++];
        slice.slice_index = next_slice_;
        const auto offset = static_cast<std::int64_t>(centre_sample(next_slice_) - clock.anchor_sample);
        slice.centre_ns = clock.anchor_ns + std::llround(static_cast<double>(offset) * clock.ns_per_sample);
        compute(slice);
        ++next_slice_;
        filled_ -= kMelHopSamples;
        std::memmove(samples_.data(), samples_.data() + kMelHopSamples, filled_ * sizeof(samples_[0]));
    }
}

void MelStream::compute(percept_mel_slice& slice) noexcept {
    if (profile_ == MelProfile::Kaldi) {
        double mean = 0;
        for (std::uint32_t n = 0; n < kMelWindowSamples; ++n) {
            mean += samples_[n];
        }
        mean /= kMelWindowSamples;
        double before = samples_[0] - mean;  // Kaldi pre-emphasises the first sample with itself
        for (std::uint32_t n = 0; n < kMelWindowSamples; ++n) {
            const double value = samples_[n] - mean;
            frame_[n] = (value - 0.97 * before) * window_[n];
            before = value;
        }  // frame_[400..511] stays zero
    } else {
        for (std::uint32_t n = 0; n < kMelWindowSamples; ++n) {
            frame_[n] = samples_[n] / 32768.0 * window_[n];
        }
    }
    fft_.power(frame_, power_);

    std::array<double, PERCEPT_MEL_BINS> bins{};
    for (std::uint32_t bin = 0; bin < PERCEPT_MEL_BINS; ++bin) {
        const Triangle& triangle = triangles_[bin];
        const double* weights = weights_.data() + triangle.offset;
        for (std::uint32_t i = 0; i < triangle.bin_count; ++i) {
            bins[bin] += weights[i] * power_[triangle.first_bin + i];
        }
    }
    if (profile_ == MelProfile::Kaldi) {
        for (std::uint32_t bin = 0; bin < PERCEPT_MEL_BINS; ++bin) {
            slice.bins[bin] = static_cast<float>(std::log(std::max(bins[bin], static_cast<double>(FLT_EPSILON))));
        }
        return;
    }
    double largest = -10.0;
    for (double& value : bins) {
        value = std::log10(std::max(value, 1e-10));
        largest = std::max(largest, value);
    }
    peak_ = has_peak_ ? std::max(largest, peak_ - kPeakFallPerSlice) : largest;
    has_peak_ = true;
    for (std::uint32_t bin = 0; bin < PERCEPT_MEL_BINS; ++bin) {
        slice.bins[bin] = static_cast<float>((std::max(bins[bin], peak_ - kPeakRange) + 4.0) / 4.0);
    }
}

}  // namespace perceptd::tokens

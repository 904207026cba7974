// Streaming log-mel slices of the 16 kHz mono signal, one per 10 ms, in one of two exactly defined profiles.
// Owns the last 25 ms of samples, the filter bank and (WHISPER_STREAM) the running peak.
// Never resamples, dithers or bridges a gap: the caller says reset() where the stream is broken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "percept_layout.h"
#include "tokens/fft.hpp"

namespace perceptd::tokens {

inline constexpr std::uint32_t kMelRateHz = 16'000;
inline constexpr std::uint32_t kMelWindowSamples = 400;
inline constexpr std::uint32_t kMelHopSamples = 160;

/// KALDI: int16 scale, 512-point FFT, DC removal, pre-emphasis 0.97, povey window, ln of power; slice k covers
/// samples [160k, 160k + 400) (snip_edges).
/// WHISPER_STREAM: [-1,1) scale, 400-point FFT, periodic Hann, Slaney filters, log10, clamped to 8 below a running
/// peak, (x + 4) / 4; slice k covers [160k - 200, 160k + 200), mirrored at the stream's start. The peak falls by
/// 8 per 30 s, so values differ from Whisper's, which takes the maximum of the whole clip.
enum class MelProfile : std::uint32_t { Kaldi = PERCEPT_MEL_KALDI, WhisperStream = PERCEPT_MEL_WHISPER_STREAM };

/// Maps sample indices to the hub clock: hub_ns = anchor_ns + (index - anchor_sample) * ns_per_sample.
struct SampleClock {
    std::uint64_t anchor_sample = 0;
    std::int64_t anchor_ns = 0;
    double ns_per_sample = 1e9 / kMelRateHz;
};

struct MelPush {
    Status status = Status::Ok;  ///< Full: `out` was filled and samples are left over
    std::size_t samples_consumed = 0;
    std::size_t slice_count = 0;
};

struct AudioLevel {
    float level_dbfs = -200;          ///< RMS against 32768; -200 = digital silence or no samples
    std::uint32_t clipped_count = 0;  ///< samples at -32768 or 32767
};

/// Level and clipping of `samples`. Real-time; one pass.
AudioLevel level_of(std::span<const std::int16_t> samples) noexcept;

/// Thread-bound.
class MelStream {
public:
    /// Builds the tables; everything is allocated here.
    explicit MelStream(MelProfile profile);

    /// Takes samples in stream order and writes each slice that became complete. `slice_index` counts on the
    /// stream's 160-sample grid; centre_ns is the window's centre on `clock`. On Full, call again with the rest.
    /// Real-time: no allocation, about 30 us per slice.
    MelPush push(std::span<const std::int16_t> samples, const SampleClock& clock,
                 std::span<percept_mel_slice> out) noexcept;

    /// Starts again after a gap: the next sample pushed has index `first_sample`. The next slice is the first one
    /// of the grid that lies wholly behind the gap; its index still counts from the stream's start.
    void reset(std::uint64_t first_sample) noexcept;

    /// Index of the sample in the middle of slice `slice_index`.
    [[nodiscard]] std::uint64_t centre_sample(std::uint64_t slice_index) const noexcept;
    [[nodiscard]] MelProfile profile() const noexcept { return profile_; }
    /// Weights of mel bin `bin` over the FFT bins from `first_bin` on (tests).
    [[nodiscard]] std::span<const double> filter(std::uint32_t bin, std::uint32_t& first_bin) const noexcept;

private:
    struct Triangle {
        std::uint32_t first_bin = 0;
        std::uint32_t bin_count = 0;
        std::size_t offset = 0;
    };

    void build_kaldi();
    void build_whisper();
    void append_triangle(std::span<const double> weights_of_all_bins, std::uint32_t bin);
    void mirror_start() noexcept;
    void compute(percept_mel_slice& slice) noexcept;

    MelProfile profile_;
    RealFft fft_;
    std::array<double, kMelWindowSamples> window_{};
    std::array<Triangle, PERCEPT_MEL_BINS> triangles_{};
    std::vector<double> weights_;
    std::vector<double> frame_;
    std::vector<double> power_;
    std::array<std::int16_t, kMelWindowSamples + 1> samples_{};  // one more: the mirrored start needs sample 200
    std::uint32_t filled_ = 0;
    std::uint32_t needed_ = kMelWindowSamples;
    std::uint64_t skip_samples_ = 0;
    std::uint64_t next_slice_ = 0;
    double peak_ = 0;
    bool mirrored_ = false;
    bool has_peak_ = false;
};

}  // namespace perceptd::tokens

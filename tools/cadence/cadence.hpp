// Step cadence of a walk from the accelerometer's magnitude.
// Owns nothing.
// Never needs evenly spaced samples or an FFT: one direct Fourier sum per candidate frequency.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace perceptd {

struct AccelMagnitude {
    std::int64_t time_ns = 0;
    double mps2 = 0;
};

/// The frequency in 0.5..4 Hz (steps of 0.01 Hz) where the Hann-windowed magnitude is strongest.
/// Empty below 2 s of samples or where the magnitude does not vary.
[[nodiscard]] std::optional<double> step_cadence_hz(std::span<const AccelMagnitude> samples);

}  // namespace perceptd

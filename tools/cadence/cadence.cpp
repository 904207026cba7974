#include "cadence.hpp"

#include <cmath>
#include <numbers>
#include <vector>

namespace perceptd {

std::optional<double> step_cadence_hz(std::span<const AccelMagnitude> samples) {
    if (samples.size() < 16) {
        return std::nullopt;
    }
    const double start_ns = double(samples.front().time_ns);
    const double length_s = (double(samples.back().time_ns) - start_ns) * 1e-9;
    if (length_s < 2.0) {
        return std::nullopt;
    }
    constexpr double turn = 2.0 * std::numbers::pi;
    double weighted_sum = 0, weight_sum = 0;
    std::vector<double> times_s, weights;
    times_s.reserve(samples.size());
    weights.reserve(samples.size());
    for (const AccelMagnitude& sample : samples) {
        const double time_s = (double(sample.time_ns) - start_ns) * 1e-9;
        const double weight = 0.5 - 0.5 * std::cos(turn * time_s / length_s);
        times_s.push_back(time_s);
        weights.push_back(weight);
        weighted_sum += weight * sample.mps2;
        weight_sum += weight;
    }
    const double mean = weighted_sum / weight_sum;
    double strongest = 1e-9 * weight_sum * weight_sum;  // below this the signal is rounding noise
    std::optional<double> cadence_hz;
    for (int step = 50; step <= 400; ++step) {
        const double frequency_hz = step * 0.01;
        double real = 0, imaginary = 0;
        for (std::size_t i = 0; i < samples.size(); ++i) {
            const double value = weights[i] * (samples[i].mps2 - mean);
            real += value * std::cos(turn * frequency_hz * times_s[i]);
            imaginary += value * std::sin(turn * frequency_hz * times_s[i]);
        }
        const double power = real * real + imaginary * imaginary;
        if (power > strongest) {
            strongest = power;
            cadence_hz = frequency_hz;
        }
    }
    return cadence_hz;
}

}  // namespace perceptd

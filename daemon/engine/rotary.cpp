#include "engine/rotary.hpp"

#include <cmath>
#include <string>

#include "base/error.hpp"

namespace perceptd::engine {

RotaryTable::RotaryTable(std::size_t dimension, std::size_t position_count, double base, std::span<const float> factors,
                         double position_scale)
    : half_(dimension / 2), positions_(position_count) {
    if (dimension == 0 || dimension % 2 != 0 || !(base > 0.0) || !std::isfinite(base) ||
        !std::isfinite(position_scale)) {
        throw Error(ErrorCode::InvalidArgument, "rotary codes need an even dimension and a base above 0, not " +
                                                    std::to_string(dimension) + " and " + std::to_string(base));
    }
    if (!factors.empty() && factors.size() != half_) {
        throw Error(ErrorCode::InvalidArgument, "rotary codes of dimension " + std::to_string(dimension) + " need " +
                                                    std::to_string(half_) + " frequency factors, not " +
                                                    std::to_string(factors.size()));
    }
    std::vector<double> frequencies(half_);
    for (std::size_t i = 0; i < half_; ++i) {
        const double factor = factors.empty() ? 1.0 : static_cast<double>(factors[i]);
        if (!(factor > 0.0) || !std::isfinite(factor)) {
            throw Error(ErrorCode::InvalidArgument,
                        "rotary frequency factor " + std::to_string(i) + " is not a number above 0");
        }
        frequencies[i] =
            std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dimension)) / factor * position_scale;
    }
    table_.resize(position_count * dimension);
    for (std::size_t position = 0; position < position_count; ++position) {
        float* row = &table_[position * dimension];
        for (std::size_t i = 0; i < half_; ++i) {
            const double angle = static_cast<double>(position) * frequencies[i];
            row[i] = static_cast<float>(std::cos(angle));
            row[half_ + i] = static_cast<float>(std::sin(angle));
        }
    }
}

}  // namespace perceptd::engine

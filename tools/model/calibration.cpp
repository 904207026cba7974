#include "calibration.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "gguf_output.hpp"
#include "matrix_output.hpp"
#include "model/blocks.hpp"
#include "model/model_file.hpp"
#include "reference_decoder.hpp"

namespace perceptd::model_tool {
namespace {

constexpr std::string_view kImportanceSuffix = ".importance";
constexpr std::string_view kLargestSuffix = ".largest";

std::span<const float> checked(const std::vector<float>& values, std::string_view tensor, std::uint64_t columns) {
    if (values.size() != columns) {
        throw Error(ErrorCode::InvalidArgument, "the calibration of " + std::string(tensor) + " has " +
                                                    std::to_string(values.size()) + " values for " +
                                                    std::to_string(columns) + " columns");
    }
    return values;
}

/// Sums over all tokens seen.
struct Channels {
    std::vector<double> squares;
    std::vector<double> largest;
    std::uint64_t tokens = 0;

    void add(const Columns& input) {
        squares.resize(input.width);
        largest.resize(input.width);
        tokens += input.tokens;
        for (std::size_t c = 0; c < input.width; ++c) {
            for (std::size_t t = 0; t < input.tokens; ++t) {
                const double value = input.channel(c)[t];
                squares[c] += value * value;
                largest[c] = std::max(largest[c], std::abs(value));
            }
        }
    }
};

void write_vector(GgufOutput& output, const std::vector<double>& values, double divisor) {
    std::vector<std::byte> bytes(4 * values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        model::store_u32(std::span(bytes).subspan(4 * i),
                         std::bit_cast<std::uint32_t>(static_cast<float>(values[i] / divisor)));
    }
    output.write(bytes);
    output.end_tensor();
}

}  // namespace

Calibration::Calibration(const std::string& path) {
    const model::ModelFile file = model::ModelFile::open(path, model::Backing::Mapped);
    const model::Gguf gguf = model::Gguf::parse(file.bytes(), path);
    for (const model::TensorInfo& tensor : gguf.tensors()) {
        const bool is_importance = tensor.name.ends_with(kImportanceSuffix);
        if ((!is_importance && !tensor.name.ends_with(kLargestSuffix)) || tensor.type != model::TensorType::F32 ||
            tensor.rows() != 1) {
            throw Error(ErrorCode::InvalidArgument,
                        path + ": tensor " + std::string(tensor.name) +
                            ": a calibration holds F32 vectors named <tensor>.importance and <tensor>.largest");
        }
        std::vector<float> values(tensor.columns());
        model::decode_row(model::matrix_of(gguf, tensor), 0, values);
        if (std::any_of(values.begin(), values.end(), [](float value) { return !(value >= 0) || std::isinf(value); })) {
            throw Error(ErrorCode::InvalidArgument,
                        path + ": tensor " + std::string(tensor.name) + ": must be finite, 0 or more");
        }
        const std::size_t suffix = is_importance ? kImportanceSuffix.size() : kLargestSuffix.size();
        (is_importance ? importance_ : largest_)[std::string(tensor.name.substr(0, tensor.name.size() - suffix))] =
            std::move(values);
    }
}

std::span<const float> Calibration::importance(std::string_view tensor, std::uint64_t columns) const {
    const auto found = importance_.find(tensor);
    return found == importance_.end() ? std::span<const float>() : checked(found->second, tensor, columns);
}

std::span<const float> Calibration::largest(std::string_view tensor, std::uint64_t columns) const {
    const auto found = largest_.find(tensor);
    return found == largest_.end() ? std::span<const float>() : checked(found->second, tensor, columns);
}

void calibrate(const std::string& input, const SampleOptions& sample, const std::string& output) {
    const model::DecoderFile model = model::DecoderFile::read(model::ModelFile::open(input, model::Backing::Mapped));
    const auto sequences = token_sample(model, sample);
    std::map<std::string, Channels> all;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
        (void)reference_logits(model.decoder, sequences[s], [&](const model::WeightMatrix& matrix, const Columns& x) {
            all[std::string(matrix.name)].add(x);
        });
        show_progress(s + 1, sequences.size(), "of the sequences");
    }
    model::GgufWriter header;
    for (const auto& [name, channels] : all) {
        const std::uint64_t count = channels.squares.size();
        header.add_tensor(name + std::string(kImportanceSuffix), model::TensorType::F32, std::span(&count, 1));
        header.add_tensor(name + std::string(kLargestSuffix), model::TensorType::F32, std::span(&count, 1));
    }
    GgufOutput file(output, header);
    for (const auto& [name, channels] : all) {
        write_vector(file, channels.squares, static_cast<double>(channels.tokens));
        write_vector(file, channels.largest, 1);
    }
    file.commit();
}

}  // namespace perceptd::model_tool

// Copies metadata, re-encodes matrices, streams.
#include "quantization.hpp"

#include <filesystem>
#include <iostream>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "calibration.hpp"
#include "matrix_output.hpp"
#include "model/model_file.hpp"
#include "smoothing.hpp"

namespace perceptd::model_tool {
namespace {

bool is_companion(std::string_view name) {
    return name.ends_with(model::kRowScaleSuffix);
}

/// Rows of `matrix`, smoothed.
RowSource rows_of(const model::WeightMatrix& matrix, const TensorFactors* factors) {
    return [&matrix, factors](std::uint64_t index, std::span<float> row) {
        model::decode_row(matrix, index, row);
        if (factors == nullptr) {
            return;
        }
        const float all = factors->rows.empty() ? 1.0F : factors->rows[index];
        for (std::size_t c = 0; c < row.size(); ++c) {
            row[c] *= factors->columns.empty() ? all : all * factors->columns[c];
        }
    };
}

/// Mean squared activations of a smoothed matrix: its input was divided.
std::vector<float> importance_of(const Calibration& calibration, const MatrixPlan& plan, const TensorFactors* factors) {
    const std::span<const float> known = calibration.importance(plan.name, plan.columns);
    std::vector<float> importance(known.begin(), known.end());
    for (std::size_t c = 0; factors != nullptr && !factors->columns.empty() && c < importance.size(); ++c) {
        importance[c] /= factors->columns[c] * factors->columns[c];
    }
    return importance;
}

MatrixPlan plan_of(const model::WeightMatrix& matrix, const model::TensorInfo& tensor, model::Encoding encoding) {
    MatrixPlan plan{std::string(tensor.name), encoding, matrix.columns, matrix.rows, tensor.rank == 1};
    if (tensor.rank == 1) {
        plan.encoding = matrix.encoding;
    } else if (matrix.columns % model::column_multiple_of(encoding) != 0) {
        std::cerr << "keeping " << plan.name << " as " << model::name_of(matrix.encoding) << ": rows of "
                  << matrix.columns << " weights are no multiple of " << model::column_multiple_of(encoding) << "\n";
        plan.encoding = matrix.encoding;
    }
    return plan;
}

}  // namespace

void quantize(const std::string& input, const std::string& output_path, const QuantizeOptions& options) {
    std::error_code ignored;
    if (std::filesystem::equivalent(input, output_path, ignored)) {
        throw Error(ErrorCode::InvalidArgument, output_path + ": is the input; name another file for the output");
    }
    if (options.smoothing.has_value() && options.calibration_path.empty()) {
        throw Error(ErrorCode::InvalidArgument,
                    "smoothing needs a calibration; make one with perceptd-model calibrate");
    }
    const Calibration calibration =
        options.calibration_path.empty() ? Calibration() : Calibration(options.calibration_path);
    const model::ModelFile file = model::ModelFile::open(input, model::Backing::Mapped);
    const model::Gguf source = model::Gguf::parse(file.bytes(), input);
    const Smoothing smoothing = options.smoothing.has_value()
                                    ? Smoothing(model::read_decoder(source), calibration, *options.smoothing)
                                    : Smoothing();
    model::GgufWriter header;
    for (const model::GgufEntry& entry : source.metadata()) {
        if (!entry.key.starts_with(model::kQuantizationKey) && entry.key != "general.alignment" &&
            entry.key != "general.file_type") {
            header.add_value(entry.key, entry.value);
        }
    }
    std::vector<model::WeightMatrix> matrices;
    std::vector<MatrixPlan> plans;
    for (const model::TensorInfo& tensor : source.tensors()) {
        if (!is_companion(tensor.name)) {
            matrices.push_back(model::matrix_of(source, tensor));
            plans.push_back(plan_of(matrices.back(), tensor, options.encoding));
            declare(header, plans.back());
        }
    }
    GgufOutput output(output_path, header);
    for (std::size_t t = 0; t < plans.size(); ++t) {
        const model::WeightMatrix& matrix = matrices[t];
        const TensorFactors* const factors = smoothing.of(plans[t].name);
        if (factors == nullptr && plans[t].encoding == matrix.encoding && !model::is_fp8(matrix.encoding)) {
            output.write(matrix.bytes);
            output.end_tensor();
        } else {
            write_matrix(output, plans[t], rows_of(matrix, factors), importance_of(calibration, plans[t], factors));
        }
        show_progress(t + 1, plans.size(), plans[t].name);
    }
    output.commit();
}

}  // namespace perceptd::model_tool

// Copies metadata, re-encodes matrices, streams.
#include "quantization.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "matrix_output.hpp"
#include "model/model_file.hpp"

namespace perceptd::model_tool {
namespace {

constexpr std::string_view kImportanceSuffix = ".importance";

bool is_companion(std::string_view name) {
    return name.ends_with(model::kRowScaleSuffix);
}

class Calibration {
public:
    explicit Calibration(const std::string& path) {
        if (path.empty()) {
            return;
        }
        const model::ModelFile file = model::ModelFile::open(path, model::Backing::Mapped);
        const model::Gguf gguf = model::Gguf::parse(file.bytes(), path);
        for (const model::TensorInfo& tensor : gguf.tensors()) {
            if (!tensor.name.ends_with(kImportanceSuffix) || tensor.type != model::TensorType::F32 ||
                tensor.rows() != 1) {
                throw Error(ErrorCode::InvalidArgument,
                            path + ": tensor " + std::string(tensor.name) +
                                ": a calibration holds F32 vectors named <tensor>.importance");
            }
            std::vector<float> values(tensor.columns());
            model::decode_row(model::matrix_of(gguf, tensor), 0, values);
            if (std::any_of(values.begin(), values.end(),
                            [](float value) { return !(value >= 0) || std::isinf(value); })) {
                throw Error(ErrorCode::InvalidArgument,
                            path + ": tensor " + std::string(tensor.name) + ": must be finite, 0 or more");
            }
            values_[std::string(tensor.name.substr(0, tensor.name.size() - kImportanceSuffix.size()))] =
                std::move(values);
        }
    }

    [[nodiscard]] std::span<const float> of(const MatrixPlan& plan) const {
        const auto found = values_.find(plan.name);
        if (found == values_.end()) {
            return {};
        }
        if (found->second.size() != plan.columns) {
            throw Error(ErrorCode::InvalidArgument, "the calibration of " + plan.name + " has " +
                                                        std::to_string(found->second.size()) + " values for " +
                                                        std::to_string(plan.columns) + " columns");
        }
        return found->second;
    }

private:
    std::map<std::string, std::vector<float>> values_;
};

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

void quantize(const std::string& input, const std::string& output_path, model::Encoding encoding,
              const std::string& calibration_path) {
    std::error_code ignored;
    if (std::filesystem::equivalent(input, output_path, ignored)) {
        throw Error(ErrorCode::InvalidArgument, output_path + ": is the input; name another file for the output");
    }
    const Calibration calibration(calibration_path);
    const model::ModelFile file = model::ModelFile::open(input, model::Backing::Mapped);
    const model::Gguf source = model::Gguf::parse(file.bytes(), input);
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
            plans.push_back(plan_of(matrices.back(), tensor, encoding));
            declare(header, plans.back());
        }
    }
    GgufOutput output(output_path, header);
    for (std::size_t t = 0; t < plans.size(); ++t) {
        const model::WeightMatrix& matrix = matrices[t];
        if (plans[t].encoding == matrix.encoding && !model::is_fp8(matrix.encoding)) {
            output.write(matrix.bytes);
            output.end_tensor();
        } else {
            const RowSource rows = [&](std::uint64_t index, std::span<float> row) {
                model::decode_row(matrix, index, row);
            };
            write_matrix(output, plans[t], rows, calibration.of(plans[t]));
        }
        show_progress(t + 1, plans.size(), plans[t].name);
    }
    output.commit();
}

}  // namespace perceptd::model_tool

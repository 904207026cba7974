// A weight matrix on its way into a file: declared in the header, then encoded row by row on all processors. Owns
// nothing. Never holds a whole matrix.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "gguf_output.hpp"
#include "model/weights.hpp"

namespace perceptd::model_tool {

struct MatrixPlan {
    std::string name;
    model::Encoding encoding = model::Encoding::F32;
    std::uint64_t columns = 0;
    std::uint64_t rows = 0;
    bool is_vector = false;  ///< one dimension in the file
};

/// Fills row `index`; called from several threads at once.
using RowSource = std::function<void(std::uint64_t index, std::span<float> row)>;

/// Adds the tensor, and what perceptd's own encodings need beside it.
void declare(model::GgufWriter& header, const MatrixPlan& plan);

/// Writes what declare() announced; `importance` is per column or empty. Throws what encode_row() throws, with the
/// name.
void write_matrix(GgufOutput& output, const MatrixPlan& plan, const RowSource& source,
                  std::span<const float> importance = {});

/// Says "done of all: what" on stderr, at most about ten times a second.
void show_progress(std::uint64_t done, std::uint64_t all, const std::string& what);

}  // namespace perceptd::model_tool

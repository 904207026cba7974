// The standard programs on the CPU: sums run over the depth in order, one row of outputs beside the other, so that the
// compiler makes vectors of outputs and never changes the order of a sum.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "queue/cpu_program.hpp"

namespace perceptd::queue {
namespace {

constexpr std::uint32_t kDimensionMax = 1U << 20;
constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 32;  // of one operand
constexpr std::uint64_t kStepProducts = 1U << 18;

/// out[i] += a * b[i]; i8 in two's complement, where only unsigned sums may wrap.
void add_scaled(std::int32_t* __restrict out, std::int8_t a, const std::int8_t* __restrict b,
                std::size_t count) noexcept {
    const std::int32_t scale = a;
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(out[i]) +
                                           static_cast<std::uint32_t>(scale * std::int32_t{b[i]}));
    }
}

void add_scaled(float* __restrict out, float a, const float* __restrict b, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        out[i] += a * b[i];
    }
}

bool is_finite_row(const std::int32_t*, std::size_t) noexcept {
    return true;
}

bool is_finite_row(const float* row, std::size_t count) noexcept {
    // x - x is 0 for every finite x and no number for the others.
    float faults = 0;
    for (std::size_t i = 0; i < count; ++i) {
        faults += row[i] - row[i];
    }
    return faults == 0;
}

/// A convolution is a product whose left rows are patches: `rows` of outputs, each a sum over `depth` places of the
/// left operand, which lie `spans` stretches of `span` elements apart.
struct Geometry {
    std::uint64_t rows = 0, columns = 0, depth = 0;
    std::uint64_t left_elements = 0, right_elements = 0;
    std::uint64_t out_width = 1, span = 0, row_step = 0, column_step = 0, stretch_step = 0;

    /// Where element `k` of the left row `row` lies.
    [[nodiscard]] std::uint64_t left_index(std::uint64_t row, std::uint64_t k) const noexcept {
        return row / out_width * row_step + row % out_width * column_step + k / span * stretch_step + k % span;
    }
};

Geometry geometry_of(const StandardProgram& program) {
    const auto in_range = [](std::initializer_list<std::uint32_t> sizes) {
        return std::all_of(sizes.begin(), sizes.end(),
                           [](std::uint32_t size) { return size > 0 && size <= kDimensionMax; });
    };
    Geometry shape;
    const bool is_product = program.operation == StandardProgram::Operation::Product;
    const bool is_convolution = program.operation == StandardProgram::Operation::Convolution;
    if (is_product && in_range({program.rows, program.columns, program.depth})) {
        shape.rows = program.rows;
        shape.columns = program.columns;
        shape.depth = program.depth;
        shape.left_elements = shape.rows * shape.depth;
        shape.span = shape.depth;
        shape.row_step = shape.depth;
    } else if (is_convolution &&
               in_range({program.height, program.width, program.channels, program.outputs, program.kernel,
                         program.stride}) &&
               program.kernel <= std::min(program.height, program.width) && program.kernel <= 1024) {
        const std::uint64_t row_elements = std::uint64_t{program.width} * program.channels;
        shape.out_width = (program.width - program.kernel) / program.stride + 1;
        shape.rows = ((program.height - program.kernel) / program.stride + 1) * shape.out_width;
        shape.columns = program.outputs;
        shape.depth = std::uint64_t{program.kernel} * program.kernel * program.channels;
        shape.left_elements = program.height * row_elements;
        shape.span = std::uint64_t{program.kernel} * program.channels;
        shape.row_step = program.stride * row_elements;
        shape.column_step = std::uint64_t{program.stride} * program.channels;
        shape.stretch_step = row_elements;
    } else {
        throw Error(
            ErrorCode::InvalidArgument,
            "a standard program's sizes must be 1 to 1048576 and a kernel no larger than its input; correct the shape");
    }
    shape.right_elements = shape.depth * shape.columns;
    if (shape.depth > kDimensionMax || shape.left_elements > kElementsMax || shape.right_elements > kElementsMax ||
        shape.rows * shape.columns > kElementsMax) {
        throw Error(ErrorCode::InvalidArgument,
                    "an operand of the standard program has more than 2^32 elements; cut it into parts");
    }
    return shape;
}

template <typename In, typename Out>
class CpuStandard final : public CpuProgram {
public:
    explicit CpuStandard(const Geometry& shape) : shape_(shape) {}

    [[nodiscard]] bool accepts(std::span<const CpuBinding> inputs,
                               std::span<const CpuBinding> outputs) const noexcept override {
        const auto fits = [](const CpuBinding& binding, std::uint64_t elements, std::size_t element_bytes) {
            return binding.size_bytes == elements * element_bytes &&
                   reinterpret_cast<std::uintptr_t>(binding.data) % element_bytes == 0;
        };
        return inputs.size() == 2 && outputs.size() == 1 && fits(inputs[0], shape_.left_elements, sizeof(In)) &&
               fits(inputs[1], shape_.right_elements, sizeof(In)) &&
               fits(outputs[0], shape_.rows * shape_.columns, sizeof(Out));
    }

    [[nodiscard]] Status begin(std::span<const CpuBinding> inputs,
                               std::span<const CpuBinding> outputs) noexcept override {
        left_ = reinterpret_cast<const In*>(inputs[0].data);
        right_ = reinterpret_cast<const In*>(inputs[1].data);
        out_ = reinterpret_cast<Out*>(outputs[0].data);
        row_ = 0;
        k_ = 0;
        return Status::Ok;
    }

    [[nodiscard]] Status step() noexcept override {
        for (std::uint64_t products = 0; products < kStepProducts && row_ < shape_.rows;) {
            Out* const row = out_ + row_ * shape_.columns;
            if (k_ == 0) {
                std::fill_n(row, shape_.columns, Out{});
            }
            const std::uint64_t left = std::max<std::uint64_t>((kStepProducts - products) / shape_.columns, 1);
            const std::uint64_t end = std::min(shape_.depth, k_ + left);
            for (; k_ < end; ++k_) {
                add_scaled(row, left_[shape_.left_index(row_, k_)], right_ + k_ * shape_.columns, shape_.columns);
                products += shape_.columns;
            }
            if (k_ == shape_.depth) {
                if (!is_finite_row(row, shape_.columns)) {
                    return Status::NotFinite;
                }
                k_ = 0;
                ++row_;
            }
        }
        return row_ < shape_.rows ? Status::Again : Status::Ok;
    }

private:
    Geometry shape_;
    const In* left_ = nullptr;
    const In* right_ = nullptr;
    Out* out_ = nullptr;
    std::uint64_t row_ = 0;
    std::uint64_t k_ = 0;
};

}  // namespace

std::unique_ptr<CpuProgram> make_cpu_standard(const StandardProgram& program) {
    const Geometry shape = geometry_of(program);
    switch (program.types) {
        case StandardProgram::Types::I8I32: return std::make_unique<CpuStandard<std::int8_t, std::int32_t>>(shape);
        case StandardProgram::Types::F32F32: return std::make_unique<CpuStandard<float, float>>(shape);
    }
    throw Error(ErrorCode::InvalidArgument, "a standard program computes i8 to i32 or f32 to f32; choose one of them");
}

}  // namespace perceptd::queue

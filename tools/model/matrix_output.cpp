// Chunks of rows, split among threads that each own a part of the chunk; the order of bytes does not depend on them.
#include "matrix_output.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "model/blocks.hpp"

namespace perceptd::model_tool {
namespace {

constexpr std::uint64_t kChunkWeights = 1U << 20;

class Chunk {
public:
    Chunk(const MatrixPlan& plan, const RowSource& source, std::span<const float> importance,
          std::span<float> row_scales)
        : plan_(plan),
          source_(source),
          importance_(importance),
          row_scales_(row_scales),
          row_bytes_(model::row_bytes_of(plan.encoding, plan.columns)) {}

    /// Encodes rows [first, first + count) into `bytes_`.
    std::span<const std::byte> encode(std::uint64_t first, std::uint64_t count) {
        bytes_.resize(count * row_bytes_);
        const std::uint64_t thread_count =
            std::clamp<std::uint64_t>(std::thread::hardware_concurrency(), 1, std::min<std::uint64_t>(count, 16));
        std::vector<std::exception_ptr> errors(thread_count);
        std::vector<std::thread> threads;
        for (std::uint64_t t = 0; t < thread_count; ++t) {
            threads.emplace_back([&, t] {
                try {
                    encode_part(first, count * t / thread_count, count * (t + 1) / thread_count);
                } catch (...) {
                    errors[t] = std::current_exception();
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        for (const std::exception_ptr& error : errors) {
            if (error) {
                std::rethrow_exception(error);
            }
        }
        return bytes_;
    }

private:
    void encode_part(std::uint64_t first, std::uint64_t from, std::uint64_t to) {
        std::vector<float> row(plan_.columns);
        for (std::uint64_t i = from; i < to; ++i) {
            source_(first + i, row);
            const auto place = std::span(bytes_).subspan(i * row_bytes_, row_bytes_);
            row_scales_[first + i] = model::encode_row(plan_.encoding, row, importance_, place);
        }
    }

    const MatrixPlan& plan_;
    const RowSource& source_;
    std::span<const float> importance_;
    std::span<float> row_scales_;
    std::uint64_t row_bytes_;
    std::vector<std::byte> bytes_;
};

}  // namespace

void declare(model::GgufWriter& header, const MatrixPlan& plan) {
    const model::TensorType type = model::stored_type_of(plan.encoding);
    if (type != model::TensorType::I8) {
        const std::array<std::uint64_t, 2> dims{plan.columns, plan.rows};
        header.add_tensor(plan.name, type, std::span(dims).first(plan.is_vector ? 1 : 2));
        return;
    }
    const std::string key = std::string(model::kQuantizationKey) + plan.name;
    header.add_text(key, model::name_of(plan.encoding));
    header.add_u64(key + std::string(model::kColumnsSuffix), plan.columns);
    const std::array<std::uint64_t, 2> dims{model::row_bytes_of(plan.encoding, plan.columns), plan.rows};
    header.add_tensor(plan.name, type, dims);
    if (model::is_fp8(plan.encoding)) {
        header.add_tensor(plan.name + std::string(model::kRowScaleSuffix), model::TensorType::F32,
                          std::span(&plan.rows, 1));
    }
}

void write_matrix(GgufOutput& output, const MatrixPlan& plan, const RowSource& source,
                  std::span<const float> importance) {
    std::vector<float> row_scales(plan.rows);
    Chunk chunk(plan, source, importance, row_scales);
    const std::uint64_t chunk_rows = std::max<std::uint64_t>(1, kChunkWeights / plan.columns);
    try {
        for (std::uint64_t first = 0; first < plan.rows; first += chunk_rows) {
            output.write(chunk.encode(first, std::min(chunk_rows, plan.rows - first)));
        }
    } catch (const Error& error) {
        throw Error(error.code(), "tensor " + plan.name + ": " + error.what());
    }
    output.end_tensor();
    if (model::is_fp8(plan.encoding)) {
        std::vector<std::byte> bytes(4 * row_scales.size());
        for (std::size_t i = 0; i < row_scales.size(); ++i) {
            model::store_u32(std::span(bytes).subspan(4 * i), std::bit_cast<std::uint32_t>(row_scales[i]));
        }
        output.write(bytes);
        output.end_tensor();
    }
}

void show_progress(std::uint64_t done, std::uint64_t all, const std::string& what) {
    static std::int64_t next_at_ns = 0;
    const std::int64_t now_ns = monotonic_ns();
    if (now_ns < next_at_ns && done != all) {
        return;
    }
    next_at_ns = now_ns + 100 * kNsPerMs;
    std::fprintf(stderr, "%3llu %% %s\n", static_cast<unsigned long long>(all == 0 ? 100 : 100 * done / all),
                 what.c_str());
}

}  // namespace perceptd::model_tool

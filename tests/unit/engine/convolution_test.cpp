// Convolutions against direct sums in double.
#include "engine/convolution.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "sample_weights.hpp"

using namespace perceptd::engine;

TEST_CASE("a convolution is the direct sum, with strides, padding and quantized weights") {
    std::mt19937 random(3);
    for (const ConvolutionShape& shape :
         {ConvolutionShape{1, 37, 80, 1, 3, 1, 1, 0, 1}, ConvolutionShape{1, 36, 8, 1, 3, 1, 2, 0, 1},
          ConvolutionShape{28, 42, 3, 14, 14, 14, 14, 0, 0}, ConvolutionShape{9, 7, 5, 3, 3, 2, 2, 1, 1}}) {
        for (const WeightKind kind : {WeightKind::F32, WeightKind::F16, WeightKind::Fp8E4m3, WeightKind::Fp8E5m2,
                                      WeightKind::Q8_0, WeightKind::Int4G32}) {
            const std::size_t channels = 11;
            SampleWeights source(kind, channels, shape.padded_patch_size(), random());
            const WeightView weights = source.pack_now();
            std::vector<float> input(shape.height * shape.width * shape.channels);
            for (float& x : input) {
                x = std::ldexp(static_cast<float>(random() % 255) - 127.0F, -7);
            }
            const std::vector<float> bias(channels, 0.25F);
            const std::size_t positions = shape.out_height() * shape.out_width();
            std::vector<float> out(positions * channels);
            WorkerTeam team({.worker_count = 2, .cpu_indices = {}});
            std::vector<std::vector<std::uint64_t>> scratch(
                2, std::vector<std::uint64_t>(convolution_scratch_bytes(shape) / 8 + 1));
            FaultFlag fault{false};
            auto program = [&](Worker& worker) noexcept {
                convolve(worker, kernels_of(chosen_instruction_set()), shape, input.data(), weights, bias.data(),
                         {out.data(), channels}, reinterpret_cast<std::byte*>(scratch[worker.index()].data()), fault);
            };
            REQUIRE(team.run(program));
            REQUIRE_FALSE(fault.load());
            for (std::size_t p = 0; p < positions; ++p) {
                for (std::size_t c = 0; c < channels; ++c) {
                    double sum = 0.25;
                    double size = 0.0;
                    for (std::size_t ky = 0; ky < shape.kernel_height; ++ky) {
                        for (std::size_t kx = 0; kx < shape.kernel_width; ++kx) {
                            const auto y =
                                static_cast<std::ptrdiff_t>(p / shape.out_width() * shape.stride_height + ky) -
                                static_cast<std::ptrdiff_t>(shape.padding_height);
                            const auto x =
                                static_cast<std::ptrdiff_t>(p % shape.out_width() * shape.stride_width + kx) -
                                static_cast<std::ptrdiff_t>(shape.padding_width);
                            if (y < 0 || x < 0 || y >= static_cast<std::ptrdiff_t>(shape.height) ||
                                x >= static_cast<std::ptrdiff_t>(shape.width)) {
                                continue;
                            }
                            for (std::size_t i = 0; i < shape.channels; ++i) {
                                const std::size_t k = (ky * shape.kernel_width + kx) * shape.channels + i;
                                const double product =
                                    source.value(c, k) *
                                    static_cast<double>(input[(static_cast<std::size_t>(y) * shape.width +
                                                               static_cast<std::size_t>(x)) *
                                                                  shape.channels +
                                                              i]);
                                sum += product;
                                size += std::fabs(source.value(c, k));
                            }
                        }
                    }
                    // Quantized activations are off by at most half a step of 1/127.
                    const double bound = is_integer(kind) ? size / 254 + 1e-4 : 1e-4 + 1e-5 * size;
                    REQUIRE(std::fabs(static_cast<double>(out[p * channels + c]) - sum) <= bound);
                }
            }
        }
    }
}

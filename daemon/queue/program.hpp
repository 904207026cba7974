// What a device can be asked to load: a standard program, a decoder model, or what a vendor's compiler made. Owns the
// names and the bytes' descriptor; never weights.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/unique_fd.hpp"

namespace perceptd::queue {

/// The bits of DeviceDescription::elements; the values of PERCEPT_ELEMENT_* in proto/percept_driver.h.
enum Element : std::uint32_t {
    kElementI8 = 1U << 0,
    kElementI32 = 1U << 1,
    kElementF32 = 1U << 2,
    kElementF16 = 1U << 3,
    kElementFp8 = 1U << 4,
    kElementI4 = 1U << 5,
};

/// A program without weights: two inputs, one output, row major, little endian (percept_standard_program).
/// Product: C[rows][columns] = A[rows][depth] * B[depth][columns]. Convolution, without padding:
/// O[y][x][o] = sum I[y*stride+j][x*stride+i][c] * K[j][i][c][o].
struct StandardProgram {
    enum class Operation : std::uint32_t { Product = 1, Convolution = 2 };
    enum class Types : std::uint32_t {
        I8I32 = 1,   ///< sums wrap as two's complement: one right answer
        F32F32 = 2,  ///< sums in order of the depth index; NotFinite when a result is none
    };
    Operation operation = Operation::Product;
    Types types = Types::I8I32;
    std::uint32_t rows = 0, columns = 0, depth = 0;                                          ///< of a product
    std::uint32_t height = 0, width = 0, channels = 0, outputs = 0, kernel = 0, stride = 0;  ///< of a convolution
};

inline constexpr std::uint32_t kJobTokensMax = 8192;

/// A decoder in a GGUF file. Jobs: one input, token ids (i32, 1 to tokens_max, each in the vocabulary, from position
/// 0); one output, the logits (f32, vocabulary size) of the last token, or of as many last tokens as the output has
/// room for; its size is a multiple of one token's logits.
struct DecoderProgram {
    std::string path;                   ///< checked by model::Package or the configuration beforehand
    std::string digest;                 ///< SHA-256 of the file as the manifest says; empty: unknown
    std::string weight_folder;          ///< for packed weights; empty: packed at every load
    std::uint32_t tokens_max = 512;     ///< at most kJobTokensMax and the model's context
    std::uint32_t logit_rows_max = 17;  ///< at most tokens_max
};

/// A file of the vendor's compiler, from a model package's variant.
struct VendorProgram {
    UniqueFd file;  ///< readable, sealed or otherwise unchangeable
    std::uint64_t size_bytes = 0;
};

using Program = std::variant<StandardProgram, DecoderProgram, VendorProgram>;

}  // namespace perceptd::queue

// Fills a KernelTable from the templates: included once by each kernels_*.cpp after its lanes.
#pragma once

#include "engine/attention.inl"
#include "engine/linear.inl"
#include "engine/rows.inl"

namespace perceptd::engine {
namespace {

constexpr KernelTable table_of(InstructionSet set) {
    return KernelTable{set,         quantize_row,    rms_norm_row,  layer_norm_row, silu_multiply_row,
                       gelu_row,    exponential_row, add_rows,      softmax_row,    dot_rows,
                       rotate_head, encode_kv_row,   decode_kv_row, linear_blocks,  attend_piece};
}

}  // namespace
}  // namespace perceptd::engine

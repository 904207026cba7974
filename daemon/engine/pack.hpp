// From the row-major blocks of a GGUF tensor (or plain rows of floats) to the kernels' layout. The source is untrusted:
// sizes are checked, scales that are NaN or infinite are refused. Streaming: one row block at a time, no allocation.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/weights.hpp"
#include "engine/worker_team.hpp"

namespace perceptd::engine {

/// Bytes of one row of `columns` in the source: the GGUF block formats of the kinds that have one; Int4 kinds as in
/// model/int4.hpp.
std::size_t source_row_bytes(WeightKind kind, std::size_t columns) noexcept;

/// What packing found wrong: the first bad row, and why. Empty reason: all is well.
struct PackFault {
    std::size_t row = 0;
    const char* reason = nullptr;
};

/// Packs row blocks [block_begin, block_end) of `source` into `out` (the whole matrix's buffer, WeightView::bytes(),
/// aligned). Thread-safe for disjoint ranges; noexcept, so workers can share() it. `shape` gives kind, rows, columns.
PackFault pack_row_blocks(const WeightView& shape, std::span<const std::byte> source, std::span<std::byte> out,
                          std::size_t block_begin, std::size_t block_end) noexcept;

/// Packs everything on `team`. Throws Error (InvalidArgument) naming the row and the reason, or a wrong size.
void pack(WorkerTeam& team, const WeightView& shape, std::span<const std::byte> source, std::span<std::byte> out);

/// The value that the kernels see at (row, column), decoded from the packed bytes: the oracle's view.
double packed_value(const WeightView& weights, std::size_t row, std::size_t column) noexcept;

/// One row as floats (embedding look-up): exact to the format's definition in float, same bits everywhere.
void unpack_row(const WeightView& weights, std::size_t row, float* out) noexcept;

}  // namespace perceptd::engine

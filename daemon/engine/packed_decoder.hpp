// The weights of one decoder as kernels read them: every matrix packed, every vector as floats, in one block of memory.
// Owns that memory: huge pages that were just packed, or a cache file of an earlier packing, mapped or read.
// Never changes after construction; never keeps the model file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_region.hpp"
#include "engine/huge_buffer.hpp"
#include "engine/weights.hpp"
#include "engine/worker_team.hpp"
#include "graph/decoder_graph.hpp"
#include "model/decoder_config.hpp"
#include "model/model_file.hpp"

namespace perceptd::engine {

/// Where one weight lies.
struct PackedWeight {
    std::string name;
    WeightView matrix;              ///< data null: a vector
    const float* vector = nullptr;  ///< norms and biases; a multiple of 8 floats, the rest zero
    std::size_t offset_bytes = 0;
};

/// How packed weights from a cache file get into memory.
enum class WeightResidence : std::uint8_t {
    Mapped,     ///< pages of the file: shared between processes, and the kernel may drop them
    HugePages,  ///< a copy on huge pages: a few percent faster to walk
};

/// Move-only. Readable from any thread.
class PackedDecoder {
public:
    /// Names, places and sizes without the weights: enough to plan with. matrix.data and vector stay null.
    [[nodiscard]] static PackedDecoder lay_out(const model::Decoder& decoder) { return PackedDecoder(decoder); }
    /// Packs every weight of `decoder` on `team`. Throws Error(InvalidArgument) naming tensor, row and reason for
    /// weights that are no numbers, std::system_error when memory is short.
    /// `file`, when given, is what `decoder` lies in: its pages are released as they have been packed, so that source
    /// and result are never both in memory.
    [[nodiscard]] static PackedDecoder pack(const model::Decoder& decoder, WorkerTeam& team,
                                            const model::ModelFile* file = nullptr);
    /// Takes what pack() made of the same file out of `path`; nothing when there is none, or when it is of another
    /// layout, file (`digest`), size or owner. Throws std::system_error when it is there but cannot be read.
    [[nodiscard]] static std::optional<PackedDecoder> read(const model::Decoder& decoder, const std::string& digest,
                                                           const std::string& path, WeightResidence residence,
                                                           WorkerTeam& team);
    /// Writes a cache file for read(): complete under its name or not at all. Throws std::system_error (a full disk).
    void write(const std::string& digest, const std::string& path) const;

    [[nodiscard]] const std::vector<PackedWeight>& weights() const noexcept { return weights_; }
    /// Null when there is none of that name.
    [[nodiscard]] const PackedWeight* find(std::string_view name) const noexcept;
    /// What the graph needs to know of a weight. Throws Error(NotFound).
    [[nodiscard]] graph::WeightForm form_of(std::string_view name) const;
    [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

private:
    explicit PackedDecoder(const model::Decoder& decoder);
    void point_into(const std::byte* data) noexcept;

    std::vector<PackedWeight> weights_;  // in the order of their places
    std::vector<std::uint32_t> by_name_;
    std::size_t size_bytes_ = 0;
    HugeBuffer memory_;
    MappedRegion file_;
};

/// The name of a cache file: layout and model in one.
[[nodiscard]] std::string weight_cache_name(const std::string& digest);

/// The shape of the graph that a decoder of this configuration has.
[[nodiscard]] graph::DecoderShape decoder_shape_of(const model::DecoderConfig& config) noexcept;

}  // namespace perceptd::engine

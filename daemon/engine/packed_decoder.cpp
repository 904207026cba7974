#include "engine/packed_decoder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "engine/pack.hpp"

namespace perceptd::engine {
namespace {

constexpr std::array<char, 8> kCacheMagic{'P', 'C', 'P', 'T', 'W', 'G', 'T', '1'};
constexpr std::size_t kHeaderBytes = 4096;  // so that the weights start on a page

struct CacheHeader {
    std::array<char, 8> magic;
    std::uint32_t layout_version;
    std::uint32_t weight_count;
    std::uint64_t weight_bytes;
    std::array<char, 64> digest;
};

CacheHeader header_of(const std::string& digest, std::size_t weight_count, std::size_t weight_bytes) {
    CacheHeader header{.magic = kCacheMagic,
                       .layout_version = kWeightLayoutVersion,
                       .weight_count = static_cast<std::uint32_t>(weight_count),
                       .weight_bytes = weight_bytes,
                       .digest = {}};
    std::copy_n(digest.begin(), std::min(digest.size(), header.digest.size()), header.digest.begin());
    return header;
}

WeightKind kind_of(model::Encoding encoding) noexcept {
    switch (encoding) {
        case model::Encoding::F32: return WeightKind::F32;
        case model::Encoding::F16: return WeightKind::F16;
        case model::Encoding::Bf16: return WeightKind::Bf16;
        case model::Encoding::Q8_0: return WeightKind::Q8_0;
        case model::Encoding::Q4_0: return WeightKind::Q4_0;
        case model::Encoding::Q4_1: return WeightKind::Q4_1;
        case model::Encoding::Q4_K: return WeightKind::Q4_K;
        case model::Encoding::Q6_K: return WeightKind::Q6_K;
        case model::Encoding::Int4G32: return WeightKind::Int4G32;
        case model::Encoding::Int4G128: return WeightKind::Int4G128;
        case model::Encoding::Fp8E4m3: return WeightKind::Fp8E4m3;
        case model::Encoding::Fp8E5m2: return WeightKind::Fp8E5m2;
    }
    return WeightKind::F32;
}

/// All weights of a decoder, each once, in the order of the computation.
std::vector<const model::WeightMatrix*> matrices_of(const model::Decoder& decoder) {
    std::vector<const model::WeightMatrix*> list{&decoder.token_embedding};
    for (const model::LayerWeights& layer : decoder.layers) {
        for (const model::WeightMatrix* const matrix :
             {&layer.attention_norm, &layer.query, &layer.key, &layer.value, &layer.query_bias, &layer.key_bias,
              &layer.value_bias, &layer.attention_output, &layer.feed_forward_norm, &layer.gate, &layer.up,
              &layer.down}) {
            if (matrix->rows > 0) {
                list.push_back(matrix);
            }
        }
    }
    list.push_back(&decoder.output_norm);
    if (!decoder.config.has_tied_embeddings) {
        list.push_back(&decoder.output);
    }
    return list;
}

bool is_vector(const model::WeightMatrix& matrix) noexcept {
    return matrix.rows == 1;
}

/// The scales of FP8 rows lie behind their matrix.
std::size_t scale_bytes(const WeightView& matrix) noexcept {
    const bool has_scales = matrix.kind == WeightKind::Fp8E4m3 || matrix.kind == WeightKind::Fp8E5m2;
    return has_scales ? matrix.row_blocks() * kRowsPerBlock * sizeof(float) : 0;
}

void copy_scales(const model::WeightMatrix& matrix, std::byte* to) {
    if (matrix.row_scales.empty()) {
        return;
    }
    std::memcpy(to, matrix.row_scales.data(), matrix.row_scales.size());
    for (std::size_t row = 0; row < matrix.row_scales.size() / sizeof(float); ++row) {
        float scale = 0;
        std::memcpy(&scale, to + row * sizeof(float), sizeof(scale));
        if (!std::isfinite(scale)) {
            throw Error(ErrorCode::InvalidArgument, "the scale of row " + std::to_string(row) + " is no number");
        }
    }
}

std::size_t aligned(std::size_t bytes) noexcept {
    return (bytes + kWeightAlignmentBytes - 1) / kWeightAlignmentBytes * kWeightAlignmentBytes;
}

/// 0, or the errno.
int try_read(int fd, std::span<std::byte> into, off_t from) noexcept {
    while (!into.empty()) {
        const ssize_t got = ::pread(fd, into.data(), into.size(), from);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got == 0 ? EIO : errno;
        }
        into = into.subspan(static_cast<std::size_t>(got));
        from += got;
    }
    return 0;
}

void read_fully(int fd, std::span<std::byte> into, off_t from, const std::string& path) {
    errno = try_read(fd, into, from);
    if (errno != 0) {
        throw_errno("read", path);
    }
}

/// read_fully() by all workers: each also clears the pages that it fills, which takes as long as the copy.
void read_by_team(WorkerTeam& team, int fd, std::span<std::byte> into, off_t from, const std::string& path) {
    constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
    std::atomic<int> fault{0};
    auto program = [&](Worker& worker) noexcept {
        worker.share((into.size() + kPieceBytes - 1) / kPieceBytes, [&](std::size_t piece) {
            const std::size_t begin = piece * kPieceBytes;
            const auto part = into.subspan(begin, std::min(kPieceBytes, into.size() - begin));
            if (const int error = try_read(fd, part, from + static_cast<off_t>(begin)); error != 0) {
                fault.store(error);
            }
        });
    };
    team.run(program);
    if (fault.load() != 0) {
        errno = fault.load();
        throw_errno("read", path);
    }
}

void write_fully(int fd, std::span<const std::byte> from, const std::string& path) {
    while (!from.empty()) {
        const ssize_t put = ::write(fd, from.data(), from.size());
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            throw_errno("write", path);
        }
        from = from.subspan(static_cast<std::size_t>(put));
    }
}

}  // namespace

PackedDecoder::PackedDecoder(const model::Decoder& decoder) {
    for (const model::WeightMatrix* const matrix : matrices_of(decoder)) {
        PackedWeight weight{.name = std::string(matrix->name), .offset_bytes = size_bytes_};
        weight.matrix = {.kind = kind_of(matrix->encoding), .rows = matrix->rows, .columns = matrix->columns};
        size_bytes_ += aligned(is_vector(*matrix) ? matrix->columns * sizeof(float)
                                                  : weight.matrix.bytes() + scale_bytes(weight.matrix));
        weights_.push_back(std::move(weight));
    }
    by_name_.resize(weights_.size());
    std::iota(by_name_.begin(), by_name_.end(), 0U);
    std::sort(by_name_.begin(), by_name_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return weights_[a].name < weights_[b].name; });
}

void PackedDecoder::point_into(const std::byte* data) noexcept {
    for (PackedWeight& weight : weights_) {
        const std::byte* const place = data + weight.offset_bytes;
        if (weight.matrix.rows == 1) {
            weight.vector = reinterpret_cast<const float*>(place);
        } else {
            weight.matrix.data = place;
            weight.matrix.row_scales = reinterpret_cast<const float*>(place + weight.matrix.bytes());
        }
    }
}

PackedDecoder PackedDecoder::pack(const model::Decoder& decoder, WorkerTeam& team, const model::ModelFile* file) {
    PackedDecoder packed(decoder);
    packed.memory_ = HugeBuffer(packed.size_bytes_);
    const std::vector<const model::WeightMatrix*> matrices = matrices_of(decoder);
    for (std::size_t i = 0; i < matrices.size(); ++i) {
        const PackedWeight& weight = packed.weights_[i];
        std::byte* const place = packed.memory_.data() + weight.offset_bytes;
        if (is_vector(*matrices[i])) {
            auto* const values = reinterpret_cast<float*>(place);
            model::decode_row(*matrices[i], 0, {values, matrices[i]->columns});
            if (!std::all_of(values, values + matrices[i]->columns, [](float value) { return std::isfinite(value); })) {
                throw Error(ErrorCode::InvalidArgument, "weight '" + weight.name + "' holds a value that is no number");
            }
            continue;
        }
        try {
            engine::pack(team, weight.matrix, matrices[i]->bytes, {place, weight.matrix.bytes()});
            copy_scales(*matrices[i], place + weight.matrix.bytes());
            if (file != nullptr) {
                file->release(matrices[i]->bytes);
            }
        } catch (const Error& error) {
            throw Error(error.code(), "weight '" + weight.name + "': " + error.what());
        }
    }
    packed.point_into(packed.memory_.data());
    return packed;
}

std::optional<PackedDecoder> PackedDecoder::read(const model::Decoder& decoder, const std::string& digest,
                                                 const std::string& path, WeightResidence residence, WorkerTeam& team) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) {
        if (errno == ENOENT || errno == ELOOP) {
            return std::nullopt;
        }
        throw_errno("open", path);
    }
    PackedDecoder packed(decoder);
    struct stat status {};
    CacheHeader header{};
    if (::fstat(fd.borrow(), &status) != 0) {
        throw_errno("stat", path);
    }
    // Others could change what is mapped: only a file of our own that nobody else may write is trusted.
    if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 022) != 0 ||
        status.st_size != static_cast<off_t>(kHeaderBytes + packed.size_bytes_)) {
        return std::nullopt;
    }
    read_fully(fd.borrow(), std::as_writable_bytes(std::span(&header, 1)), 0, path);
    const CacheHeader wanted = header_of(digest, packed.weights_.size(), packed.size_bytes_);
    if (std::memcmp(&header, &wanted, sizeof(header)) != 0) {
        return std::nullopt;
    }
    if (residence == WeightResidence::Mapped) {
        packed.file_ = MappedRegion(fd.borrow(), kHeaderBytes + packed.size_bytes_, MapAccess::Read);
        packed.point_into(packed.file_.data() + kHeaderBytes);
    } else {
        packed.memory_ = HugeBuffer(packed.size_bytes_);
        read_by_team(team, fd.borrow(), packed.memory_.bytes(), kHeaderBytes, path);
        packed.point_into(packed.memory_.data());
    }
    return packed;
}

void PackedDecoder::write(const std::string& digest, const std::string& path) const {
    const std::string partial = path + ".partial";
    ::unlink(partial.c_str());
    UniqueFd fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) {
        throw_errno("create", partial);
    }
    try {
        const CacheHeader header = header_of(digest, weights_.size(), size_bytes_);
        std::vector<std::byte> first(kHeaderBytes);
        std::memcpy(first.data(), &header, sizeof(header));
        write_fully(fd.borrow(), first, partial);
        const std::byte* const data = memory_.data() != nullptr ? memory_.data() : file_.data() + kHeaderBytes;
        write_fully(fd.borrow(), {data, size_bytes_}, partial);
        if (::fdatasync(fd.borrow()) != 0) {
            throw_errno("sync", partial);
        }
        if (::rename(partial.c_str(), path.c_str()) != 0) {
            throw_errno("rename", partial);
        }
    } catch (...) {
        ::unlink(partial.c_str());
        throw;
    }
}

const PackedWeight* PackedDecoder::find(std::string_view name) const noexcept {
    const auto found =
        std::lower_bound(by_name_.begin(), by_name_.end(), name,
                         [&](std::uint32_t index, std::string_view n) { return weights_[index].name < n; });
    return found != by_name_.end() && weights_[*found].name == name ? &weights_[*found] : nullptr;
}

graph::WeightForm PackedDecoder::form_of(std::string_view name) const {
    const PackedWeight* const weight = find(name);
    if (weight == nullptr) {
        throw Error(ErrorCode::NotFound, "the model has no weight '" + std::string(name) + "'");
    }
    if (weight->matrix.rows == 1) {
        return {weight->matrix.columns * sizeof(float), graph::Format::F32};
    }
    return {weight->matrix.bytes(), is_integer(weight->matrix.kind) ? graph::Format::Q8 : graph::Format::F32};
}

std::string weight_cache_name(const std::string& digest) {
    return digest + "-v" + std::to_string(kWeightLayoutVersion) + ".weights";
}

graph::DecoderShape decoder_shape_of(const model::DecoderConfig& config) noexcept {
    return {.vocabulary_size = config.vocabulary_size,
            .hidden_width = config.width,
            .ffn_width = config.feed_forward_width,
            .layer_count = config.layer_count,
            .attention = {config.head_count, config.kv_head_count, config.head_dim},
            .norm_epsilon = config.norm_epsilon,
            .qkv_bias = config.has_qkv_bias,
            .tied_output = config.has_tied_embeddings};
}

}  // namespace perceptd::engine

// Little-endian words in the order that the format asks for.
#include "model/gguf_writer.hpp"

#include <bit>

namespace perceptd::model {
namespace {

template <typename Number>
void put(std::vector<std::byte>& to, Number value) {
    auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
        to.push_back(static_cast<std::byte>(bits & 0xffU));
        bits >>= 8;
    }
}

void put_bytes(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
    to.insert(to.end(), bytes.begin(), bytes.end());
}

void put_text(std::vector<std::byte>& to, std::string_view text) {
    put(to, std::uint64_t{text.size()});
    put_bytes(to, std::as_bytes(std::span(text)));
}

void put_type(std::vector<std::byte>& to, GgufType type) {
    put(to, static_cast<std::uint32_t>(type));
}

}  // namespace

void GgufWriter::key(std::string_view name, GgufType type) {
    put_text(metadata_, name);
    put_type(metadata_, type);
    ++entry_count_;
}

void GgufWriter::add_u32(std::string_view name, std::uint32_t value) {
    key(name, GgufType::U32);
    put(metadata_, value);
}

void GgufWriter::add_u64(std::string_view name, std::uint64_t value) {
    key(name, GgufType::U64);
    put(metadata_, value);
}

void GgufWriter::add_f32(std::string_view name, float value) {
    key(name, GgufType::F32);
    put(metadata_, std::bit_cast<std::uint32_t>(value));
}

void GgufWriter::add_bool(std::string_view name, bool value) {
    key(name, GgufType::Bool);
    put(metadata_, static_cast<std::uint8_t>(value ? 1 : 0));
}

void GgufWriter::add_text(std::string_view name, std::string_view value) {
    key(name, GgufType::String);
    put_text(metadata_, value);
}

void GgufWriter::add_texts(std::string_view name, std::span<const std::string> values) {
    key(name, GgufType::Array);
    put_type(metadata_, GgufType::String);
    put(metadata_, std::uint64_t{values.size()});
    for (const std::string& value : values) {
        put_text(metadata_, value);
    }
}

void GgufWriter::add_floats(std::string_view name, std::span<const float> values) {
    key(name, GgufType::Array);
    put_type(metadata_, GgufType::F32);
    put(metadata_, std::uint64_t{values.size()});
    for (const float value : values) {
        put(metadata_, std::bit_cast<std::uint32_t>(value));
    }
}

void GgufWriter::add_integers(std::string_view name, std::span<const std::int32_t> values) {
    key(name, GgufType::Array);
    put_type(metadata_, GgufType::I32);
    put(metadata_, std::uint64_t{values.size()});
    for (const std::int32_t value : values) {
        put(metadata_, static_cast<std::uint32_t>(value));
    }
}

void GgufWriter::add_value(std::string_view name, const GgufValue& value) {
    key(name, value.type);
    if (value.type == GgufType::String) {
        put_text(metadata_, value.text);
    } else if (value.type == GgufType::Array) {
        put_type(metadata_, value.element_type);
        put(metadata_, value.count);
        put_bytes(metadata_, value.bytes);
    } else {
        std::vector<std::byte> bits;
        put(bits, value.bits);
        put_bytes(metadata_, std::span(bits).first(least_bytes_of(value.type)));
    }
}

std::uint64_t GgufWriter::add_tensor(std::string_view name, TensorType type, std::span<const std::uint64_t> dims) {
    std::uint64_t weights = 1;
    put_text(table_, name);
    put(table_, static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) {
        put(table_, dim);
        weights *= dim;
    }
    put(table_, static_cast<std::uint32_t>(type));
    put(table_, data_bytes_);
    const std::uint64_t size_bytes = weights / block_weights_of(type) * block_bytes_of(type);
    data_bytes_ += size_bytes + padding_after(size_bytes);
    ++tensor_count_;
    return size_bytes;
}

std::vector<std::byte> GgufWriter::header() const {
    std::vector<std::byte> bytes;
    put(bytes, std::uint32_t{0x46554747});  // "GGUF"
    put(bytes, std::uint32_t{3});
    put(bytes, tensor_count_);
    put(bytes, entry_count_);
    put_bytes(bytes, metadata_);
    put_bytes(bytes, table_);
    bytes.resize(bytes.size() + padding_after(bytes.size()));
    return bytes;
}

}  // namespace perceptd::model

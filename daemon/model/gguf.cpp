// Looking up what the parser has checked.
#include "model/gguf.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"

namespace perceptd::model {

std::size_t least_bytes_of(GgufType type) noexcept {
    switch (type) {
        case GgufType::U8:
        case GgufType::I8:
        case GgufType::Bool: return 1;
        case GgufType::U16:
        case GgufType::I16: return 2;
        case GgufType::U32:
        case GgufType::I32:
        case GgufType::F32: return 4;
        default: return 8;
    }
}

std::optional<std::uint64_t> GgufValue::as_unsigned() const noexcept {
    switch (type) {
        case GgufType::U8:
        case GgufType::U16:
        case GgufType::U32:
        case GgufType::U64: return bits;
        case GgufType::I8:
        case GgufType::I16:
        case GgufType::I32:
        case GgufType::I64: return static_cast<std::int64_t>(bits) >= 0 ? std::optional(bits) : std::nullopt;
        default: return std::nullopt;
    }
}

std::optional<double> GgufValue::as_number() const noexcept {
    switch (type) {
        case GgufType::U8:
        case GgufType::U16:
        case GgufType::U32:
        case GgufType::U64: return static_cast<double>(bits);
        case GgufType::I8:
        case GgufType::I16:
        case GgufType::I32:
        case GgufType::I64: return static_cast<double>(static_cast<std::int64_t>(bits));
        case GgufType::F32: return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
        case GgufType::F64: return std::bit_cast<double>(bits);
        default: return std::nullopt;
    }
}

std::optional<bool> GgufValue::as_bool() const noexcept {
    return type == GgufType::Bool ? std::optional(bits != 0) : std::nullopt;
}

std::optional<std::string_view> GgufValue::as_text() const noexcept {
    return type == GgufType::String ? std::optional(text) : std::nullopt;
}

std::string_view GgufStrings::next() {
    std::uint64_t length = 0;
    if (rest_.size() >= sizeof length) {
        for (std::size_t i = 0; i < sizeof length; ++i) {
            length |= std::to_integer<std::uint64_t>(rest_[i]) << (8 * i);
        }
        rest_ = rest_.subspan(sizeof length);
        if (length <= rest_.size()) {
            const std::string_view text(reinterpret_cast<const char*>(rest_.data()), length);
            rest_ = rest_.subspan(length);
            return text;
        }
    }
    throw Error(ErrorCode::InvalidArgument, "a list of strings ended early: the model file changed while it was read");
}

const GgufValue* Gguf::find(std::string_view key) const noexcept {
    const auto found =
        std::lower_bound(entries_.begin(), entries_.end(), key,
                         [](const GgufEntry& entry, std::string_view wanted) { return entry.key < wanted; });
    return found != entries_.end() && found->key == key ? &found->value : nullptr;
}

const TensorInfo* Gguf::find_tensor(std::string_view name) const noexcept {
    const auto found =
        std::lower_bound(tensors_.begin(), tensors_.end(), name,
                         [](const TensorInfo& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace perceptd::model

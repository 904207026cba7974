// The hostile half of GGUF: one pass over the header with a cursor that cannot leave the file, then the checks that
// need the whole table (duplicates, overlaps).
#include <algorithm>
#include <bit>
#include <concepts>

#include "base/error.hpp"
#include "model/gguf.hpp"
#include "model/utf8.hpp"

namespace perceptd::model {

class GgufParser {
public:
    GgufParser(std::span<const std::byte> bytes, std::string_view label) {
        file_.bytes_ = bytes;
        file_.label_ = label;
    }

    Gguf parse() {
        constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
        if (number<std::uint32_t>("the magic number") != kMagic) {
            refuse(0, "not a GGUF file; its first four bytes must be GGUF");
        }
        file_.version_ = number<std::uint32_t>("the version");
        check_version();
        const auto tensor_count = number<std::uint64_t>("the number of tensors");
        const auto entry_count = number<std::uint64_t>("the number of metadata entries");
        // 8 bytes of length, 4 of type and at least 1 of value; a tensor has 8 + 4 + 8 + 4 + 8.
        check_count(tensor_count, Gguf::kMaxTensorCount, 32, "tensors");
        check_count(entry_count, Gguf::kMaxEntryCount, 13, "metadata entries");
        file_.entries_.reserve(entry_count);
        for (std::uint64_t i = 0; i < entry_count; ++i) {
            read_entry();
        }
        sort_by(file_.entries_, &GgufEntry::key, "key");
        read_alignment();
        file_.tensors_.reserve(tensor_count);
        offsets_.reserve(tensor_count);
        for (std::uint64_t i = 0; i < tensor_count; ++i) {
            read_tensor();
        }
        place_tensors();
        sort_by(file_.tensors_, &TensorInfo::name, "tensor name");
        return std::move(file_);
    }

private:
    [[noreturn]] void refuse(std::uint64_t at_byte, const std::string& reason,
                             ErrorCode code = ErrorCode::InvalidArgument) {
        throw Error(code, file_.label_ + ": byte " + std::to_string(at_byte) + ": " + reason);
    }

    [[nodiscard]] std::uint64_t rest() const noexcept { return file_.bytes_.size() - at_; }

    std::span<const std::byte> take(std::uint64_t size_bytes, const char* what) {
        if (size_bytes > rest()) {
            refuse(at_, std::string(what) + " needs " + std::to_string(size_bytes) +
                            " bytes, but the file ends after " + std::to_string(rest()) +
                            "; it is cut short or damaged, copy it again");
        }
        const auto taken = file_.bytes_.subspan(at_, size_bytes);
        at_ += size_bytes;
        return taken;
    }

    template <std::unsigned_integral Number>
    Number number(const char* what) {
        const auto bytes = take(sizeof(Number), what);
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < sizeof(Number); ++i) {
            value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
        }
        return static_cast<Number>(value);
    }

    std::string_view text(const char* what) {
        const auto bytes = take(number<std::uint64_t>(what), what);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    std::string_view name(const char* what, std::uint64_t max_bytes) {
        const std::uint64_t start = at_;
        const std::string_view value = text(what);
        if (value.empty() || value.size() > max_bytes) {
            refuse(start, std::string(what) + " has " + std::to_string(value.size()) + " bytes; 1 .. " +
                              std::to_string(max_bytes) + " are allowed");
        }
        if (!is_utf8(value)) {
            refuse(start, std::string(what) + " is not UTF-8: " + printable(value));
        }
        return value;
    }

    void check_version() {
        if (file_.version_ == 2 || file_.version_ == 3) {
            return;
        }
        const bool is_swapped = (file_.version_ & 0xffffU) == 0 && file_.version_ != 0;
        refuse(4,
               is_swapped
                   ? "a big-endian GGUF file; convert it to little endian"
                   : "GGUF version " + std::to_string(file_.version_) + "; versions 2 and 3 are read, convert the file",
               ErrorCode::Unsupported);
    }

    void check_count(std::uint64_t count, std::uint64_t max, std::uint64_t least_bytes, const char* what) {
        if (count > max || count > rest() / least_bytes) {
            refuse(at_, std::to_string(count) + " " + what + "; at most " + std::to_string(max) +
                            " are read, and each needs " + std::to_string(least_bytes) + " bytes of a file with " +
                            std::to_string(rest()) + " left");
        }
    }

    void read_entry() {
        GgufEntry entry;
        entry.at_byte = at_;
        entry.key = name("a metadata key", Gguf::kMaxKeyBytes);
        entry.value.type = type();
        read_value(entry.value);
        file_.entries_.push_back(entry);
    }

    GgufType type() {
        const std::uint64_t start = at_;
        const auto value = number<std::uint32_t>("a value type");
        if (value > static_cast<std::uint32_t>(GgufType::F64)) {
            refuse(start, "value type " + std::to_string(value) +
                              " is not defined; the file is damaged or from a newer format");
        }
        return static_cast<GgufType>(value);
    }

    void read_value(GgufValue& value) {
        constexpr auto kWhat = "a metadata value";
        switch (value.type) {
            case GgufType::U8: value.bits = number<std::uint8_t>(kWhat); return;
            case GgufType::U16: value.bits = number<std::uint16_t>(kWhat); return;
            case GgufType::U32:
            case GgufType::F32: value.bits = number<std::uint32_t>(kWhat); return;
            case GgufType::U64:
            case GgufType::I64:
            case GgufType::F64: value.bits = number<std::uint64_t>(kWhat); return;
            case GgufType::I8: value.bits = extended(static_cast<std::int8_t>(number<std::uint8_t>(kWhat))); return;
            case GgufType::I16: value.bits = extended(static_cast<std::int16_t>(number<std::uint16_t>(kWhat))); return;
            case GgufType::I32: value.bits = extended(static_cast<std::int32_t>(number<std::uint32_t>(kWhat))); return;
            case GgufType::Bool: value.bits = boolean(); return;
            case GgufType::String: value.text = text(kWhat); return;
            case GgufType::Array: return read_array(value);
        }
    }

    static std::uint64_t extended(std::int64_t value) noexcept { return static_cast<std::uint64_t>(value); }

    std::uint64_t boolean() {
        const std::uint64_t start = at_;
        const auto value = number<std::uint8_t>("a bool");
        if (value > 1) {
            refuse(start, "a bool is " + std::to_string(value) + "; 0 and 1 are allowed");
        }
        return value;
    }

    void read_array(GgufValue& value) {
        const std::uint64_t start = at_;
        value.element_type = type();
        if (value.element_type == GgufType::Array) {
            refuse(start, "an array of arrays; no model needs one, so it is refused");
        }
        value.count = number<std::uint64_t>("an array's length");
        const std::uint64_t each = least_bytes_of(value.element_type);
        if (value.count > rest() / each) {
            refuse(start, "an array of " + std::to_string(value.count) + " elements, but the file ends after " +
                              std::to_string(rest()) + " bytes; it is cut short or damaged, copy it again");
        }
        const std::uint64_t first = at_;
        if (value.element_type == GgufType::String) {
            for (std::uint64_t i = 0; i < value.count; ++i) {
                text("a string of an array");
            }
        } else {
            take(value.count * each, "an array");
        }
        value.bytes = file_.bytes_.subspan(first, at_ - first);
    }

    void read_alignment() {
        constexpr std::uint64_t kMaxAlignment = 1U << 16;
        const GgufValue* const value = file_.find("general.alignment");
        if (value == nullptr) {
            return;
        }
        const std::uint64_t alignment = value->as_unsigned().value_or(0);
        if (!std::has_single_bit(alignment) || alignment < 8 || alignment > kMaxAlignment) {
            refuse(entry_at("general.alignment"), "general.alignment must be a power of two, 8 .. 65536 bytes");
        }
        file_.alignment_bytes_ = static_cast<std::uint32_t>(alignment);
    }

    [[nodiscard]] std::uint64_t entry_at(std::string_view key) const noexcept {
        const auto found = std::find_if(file_.entries_.begin(), file_.entries_.end(),
                                        [&](const GgufEntry& entry) { return entry.key == key; });
        return found == file_.entries_.end() ? 0 : found->at_byte;
    }

    void read_tensor() {
        TensorInfo tensor;
        tensor.at_byte = at_;
        tensor.name = name("a tensor name", Gguf::kMaxNameBytes);
        const std::string shown = "tensor " + printable(tensor.name);
        tensor.rank = number<std::uint32_t>("a tensor's rank");
        if (tensor.rank < 1 || tensor.rank > tensor.dims.size()) {
            refuse(tensor.at_byte, shown + " has " + std::to_string(tensor.rank) + " dimensions; 1 .. 4 are allowed");
        }
        for (std::uint32_t i = 0; i < tensor.rank; ++i) {
            tensor.dims[i] = number<std::uint64_t>("a tensor's dimension");
        }
        const auto type_number = number<std::uint32_t>("a tensor's type");
        const auto type = tensor_type_of(type_number);
        if (!type) {
            refuse(tensor.at_byte,
                   shown + " is stored as " + tensor_type_name(type_number) +
                       "; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K and I8 are read, convert the file",
                   ErrorCode::Unsupported);
        }
        tensor.type = *type;
        const auto offset = number<std::uint64_t>("a tensor's offset");
        if (offset % file_.alignment_bytes_ != 0) {
            refuse(tensor.at_byte, shown + " starts at offset " + std::to_string(offset) +
                                       ", which is no multiple of " + std::to_string(file_.alignment_bytes_));
        }
        offsets_.push_back({offset, size_of(tensor, shown), file_.tensors_.size()});
        file_.tensors_.push_back(tensor);
    }

    std::uint64_t size_of(const TensorInfo& tensor, const std::string& shown) {
        const std::uint64_t block_weights = block_weights_of(tensor.type);
        if (tensor.dims[0] % block_weights != 0) {
            refuse(tensor.at_byte, shown + " has rows of " + std::to_string(tensor.dims[0]) + " weights; " +
                                       tensor_type_name(tensor.type) + " needs a multiple of " +
                                       std::to_string(block_weights));
        }
        std::uint64_t weights = 1;
        std::uint64_t size_bytes = 0;
        for (const std::uint64_t dim : tensor.dims) {
            if (dim == 0 || __builtin_mul_overflow(weights, dim, &weights)) {
                refuse(tensor.at_byte, shown + " has a dimension of 0, or more weights than 64 bits count");
            }
        }
        if (__builtin_mul_overflow(weights / block_weights, std::uint64_t{block_bytes_of(tensor.type)}, &size_bytes)) {
            refuse(tensor.at_byte, shown + " has more bytes than 64 bits count");
        }
        return size_bytes;
    }

    void place_tensors() {
        const std::uint64_t alignment = file_.alignment_bytes_;
        const std::uint64_t data_at = (at_ + alignment - 1) / alignment * alignment;
        const std::uint64_t data_bytes = file_.bytes_.size() > data_at ? file_.bytes_.size() - data_at : 0;
        std::sort(offsets_.begin(), offsets_.end(), [](const Place& a, const Place& b) {
            return a.offset != b.offset ? a.offset < b.offset : a.index < b.index;
        });
        std::uint64_t end = 0;
        std::string_view before;
        for (const Place& place : offsets_) {
            TensorInfo& tensor = file_.tensors_[place.index];
            const std::string shown = "tensor " + printable(tensor.name);
            if (place.offset > data_bytes || place.size_bytes > data_bytes - place.offset) {
                refuse(tensor.at_byte, shown + " needs " + std::to_string(place.size_bytes) + " bytes at offset " +
                                           std::to_string(place.offset) + " of the data, which has " +
                                           std::to_string(data_bytes) +
                                           "; the file is cut short or damaged, copy it again");
            }
            if (place.offset < end) {
                refuse(tensor.at_byte, shown + " overlaps tensor " + printable(before));
            }
            end = place.offset + place.size_bytes;
            before = tensor.name;
            tensor.bytes = file_.bytes_.subspan(data_at + place.offset, place.size_bytes);
        }
    }

    template <typename Item>
    void sort_by(std::vector<Item>& items, std::string_view Item::*key, const char* what) {
        std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
            return a.*key != b.*key ? a.*key < b.*key : a.at_byte < b.at_byte;
        });
        const auto twice = std::adjacent_find(items.begin(), items.end(),
                                              [&](const Item& a, const Item& b) { return a.*key == b.*key; });
        if (twice != items.end()) {
            refuse((twice + 1)->at_byte, std::string("the ") + what + " " + printable((*twice).*key) + " occurs twice");
        }
    }

    struct Place {
        std::uint64_t offset;
        std::uint64_t size_bytes;
        std::size_t index;
    };

    Gguf file_;
    std::uint64_t at_ = 0;
    std::vector<Place> offsets_;
};

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string_view label) {
    return GgufParser(bytes, label).parse();
}

}  // namespace perceptd::model

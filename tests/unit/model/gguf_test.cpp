#include "model/gguf.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "gguf_bytes.hpp"
#include "model/weights.hpp"

using namespace perceptd;
using namespace perceptd::model;
using namespace perceptd::model::test;

namespace {

constexpr std::uint64_t kHuge = std::uint64_t{1} << 60;

Bytes good_file() {
    Bytes bytes;
    bytes.start(2, 5)
        .entry("general.architecture", GgufType::String)
        .text("llama")
        .entry("a.count", GgufType::U32)
        .u32(7)
        .entry("a.negative", GgufType::I32)
        .u32(0xffffffff)
        .entry("a.list", GgufType::Array)
        .u32(8)
        .u64(2)
        .text("x")
        .text("yz")
        .entry("a.flag", GgufType::Bool)
        .u8(1)
        .tensor("first", {4, 2}, 0, 0)
        .tensor("second", {32}, 8, 32)
        .data(32 + 34);
    return bytes;
}

struct BadFile {
    const char* what;
    Bytes bytes;
    const char* reason;
};

std::vector<BadFile> bad_headers() {
    std::vector<BadFile> bad;
    const auto add = [&](const char* what, Bytes bytes, const char* reason) {
        bad.push_back({what, std::move(bytes), reason});
    };
    add("empty", Bytes(), "the file ends");
    add("magic", Bytes().raw("GGML").u32(3).u64(0).u64(0), "byte 0: not a GGUF file");
    add("version 1", Bytes().start(0, 0, 1), "byte 4: GGUF version 1");
    add("version 4", Bytes().start(0, 0, 4), "GGUF version 4");
    add("big endian", Bytes().start(0, 0, 0x03000000), "big-endian");
    add("huge tensor count", Bytes().start(kHuge, 0), "tensors");
    add("huge entry count", Bytes().start(0, kHuge), "metadata entries");
    add("more tensors than bytes", Bytes().start(1000, 0).data(64), "1000 tensors");
    add("more entries than bytes", Bytes().start(0, 1000).data(64), "1000 metadata entries");
    add("key beyond the file", Bytes().start(0, 1).u64(kHuge).data(64), "a metadata key needs");
    add("key of 2^64 - 1 bytes", Bytes().start(0, 1).u64(~0ULL).data(64), "a metadata key needs");
    add("empty key", Bytes().start(0, 1).entry("", GgufType::U8).u8(0).data(64), "a metadata key has 0 bytes");
    add("key too long", Bytes().start(0, 1).entry(std::string(65536, 'k'), GgufType::U8).u8(0), "has 65536 bytes");
    add("key is no UTF-8", Bytes().start(0, 1).entry("a\xff", GgufType::U8).u8(0).data(8), "not UTF-8: a\\xff");
    add("value type", Bytes().start(0, 1).text("k").u32(13).data(64), "value type 13 is not defined");
    add("bool of 2", Bytes().start(0, 1).entry("k", GgufType::Bool).u8(2).data(64), "a bool is 2");
    add("nested array", Bytes().start(0, 1).entry("k", GgufType::Array).u32(9).u64(1).data(64), "array of arrays");
    add("array element type", Bytes().start(0, 1).entry("k", GgufType::Array).u32(99).u64(1).data(64), "value type 99");
    add("huge array", Bytes().start(0, 1).entry("k", GgufType::Array).u32(5).u64(kHuge).data(64), "an array of");
    add("array length overflows", Bytes().start(0, 1).entry("k", GgufType::Array).u32(12).u64(kHuge * 2 + 1).data(64),
        "an array of");
    add("huge string array", Bytes().start(0, 1).entry("k", GgufType::Array).u32(8).u64(kHuge).data(64), "an array of");
    add("string in array too long", Bytes().start(0, 1).entry("k", GgufType::Array).u32(8).u64(1).u64(99).data(8),
        "a string of an array needs 99");
    add("key twice", Bytes().start(0, 2).entry("k", GgufType::U8).u8(0).entry("k", GgufType::U8).u8(1).data(8),
        "byte 38: the key k occurs twice");
    for (const std::uint64_t alignment : {0ULL, 1ULL, 4ULL, 24ULL, 131072ULL}) {
        add("alignment", Bytes().start(0, 1).entry("general.alignment", GgufType::U32).u32(alignment).data(64),
            "power of two");
    }
    add("alignments that contradict each other",
        Bytes()
            .start(0, 2)
            .entry("general.alignment", GgufType::U32)
            .u32(32)
            .entry("general.alignment", GgufType::U32)
            .u32(64)
            .data(64),
        "the key general.alignment occurs twice");
    add("alignment is a text", Bytes().start(0, 1).entry("general.alignment", GgufType::String).text("32").data(64),
        "power of two");
    return bad;
}

std::vector<BadFile> bad_tensors() {
    std::vector<BadFile> bad;
    const auto add = [&](const char* what, Bytes bytes, const char* reason) {
        bad.push_back({what, std::move(bytes), reason});
    };
    const auto one = [](std::vector<std::uint64_t> dims, std::uint64_t type, std::uint64_t offset,
                        std::size_t data = 256) {
        return Bytes().start(1, 0).tensor("t", std::move(dims), type, offset).data(data);
    };
    add("name too long", Bytes().start(1, 0).tensor(std::string(65, 'n'), {4}, 0, 0).data(64), "has 65 bytes");
    add("name is no UTF-8", Bytes().start(1, 0).tensor("\xc3", {4}, 0, 0).data(64), "not UTF-8");
    add("rank 0", one({}, 0, 0), "0 dimensions");
    add("rank 5", one({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
    add("rank 2^32 - 1", Bytes().start(1, 0).text("t").u32(0xffffffff).data(64), "4294967295 dimensions");
    add("dimension 0", one({4, 0}, 0, 0), "dimension of 0");
    add("dimension 2^60", one({kHuge}, 0, 0), "needs");
    add("product overflows", one({kHuge, kHuge}, 0, 0), "more weights than 64 bits");
    add("bytes overflow", one({kHuge, 8}, 0, 0), "more bytes than 64 bits");
    add("product overflows to 0", one({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 0),
        "more weights than 64 bits");
    add("type Q5_K", one({256}, 13, 0), "stored as Q5_K");
    add("type Q4_2, withdrawn", one({256}, 4, 0), "stored as type 4");
    add("type 4 billion", one({256}, 0xfffffff0, 0), "stored as type 4294967280");
    add("rows are no blocks", one({33}, 8, 0), "Q8_0 needs a multiple of 32");
    add("rows are no superblocks", one({128}, 14, 0), "Q6_K needs a multiple of 256");
    add("offset not aligned", one({4}, 0, 16), "no multiple of 32");
    add("offset beyond the file", one({4}, 0, 512), "needs 16 bytes at offset 512");
    add("offset of 2^64 - 32", one({4}, 0, ~0ULL - 31), "needs 16 bytes");
    add("end beyond the file", one({65}, 0, 0), "needs 260 bytes");
    add("overlap", Bytes().start(2, 0).tensor("a", {16}, 0, 0).tensor("b", {4}, 0, 32).data(64),
        "tensor b overlaps tensor a");
    add("same place", Bytes().start(2, 0).tensor("a", {4}, 0, 0).tensor("b", {4}, 0, 0).data(64), "overlaps");
    add("name twice", Bytes().start(2, 0).tensor("a", {4}, 0, 0).tensor("a", {4}, 0, 32).data(64),
        "the tensor name a occurs twice");
    return bad;
}

}  // namespace

TEST_CASE("A good file is read as it was written") {
    const Bytes bytes = good_file();
    const Gguf file = Gguf::parse(bytes.span(), "good");
    CHECK(file.version() == 3);
    CHECK(file.metadata().size() == 5);
    CHECK(file.find("general.architecture")->as_text() == "llama");
    CHECK(file.find("a.count")->as_unsigned() == 7);
    CHECK(file.find("a.negative")->as_unsigned() == std::nullopt);
    CHECK(file.find("a.negative")->as_number() == -1.0);
    CHECK(file.find("a.flag")->as_bool() == true);
    CHECK(file.find("a.count")->as_bool() == std::nullopt);
    CHECK(file.find("missing") == nullptr);
    GgufStrings strings(*file.find("a.list"));
    CHECK(strings.next() == "x");
    CHECK(strings.next() == "yz");
    CHECK_THROWS_AS(strings.next(), Error);
    const TensorInfo* const first = file.find_tensor("first");
    REQUIRE(first != nullptr);
    CHECK(first->columns() == 4);
    CHECK(first->rows() == 2);
    CHECK(first->bytes.size() == 32);
    CHECK(file.find_tensor("second")->bytes.data() == first->bytes.data() + 32);
    CHECK(file.find_tensor("second")->bytes.size() == 34);
    CHECK(file.find_tensor("third") == nullptr);
}

TEST_CASE("Every bad file is refused with the place and the reason") {
    auto all = bad_headers();
    for (BadFile& bad : bad_tensors()) {
        all.push_back(std::move(bad));
    }
    for (const BadFile& bad : all) {
        INFO(bad.what);
        CHECK_THROWS_WITH(Gguf::parse(bad.bytes.span(), "bad.gguf"),
                          Catch::StartsWith("bad.gguf: byte ") && Catch::Contains(bad.reason));
    }
}

TEST_CASE("A file cut anywhere is refused, and read no further than its end") {
    const auto bytes = good_file().take();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        const std::vector<std::byte> cut(bytes.begin(),
                                         bytes.begin() + static_cast<std::ptrdiff_t>(size));  // ASan sees its end
        INFO(size);
        CHECK_THROWS_AS(Gguf::parse(cut, "cut"), Error);
    }
}

TEST_CASE("A file with any byte changed is read or refused, nothing else") {
    const auto bytes = good_file().take();
    std::size_t refused_count = 0;
    for (std::size_t at = 0; at < bytes.size() - 66; ++at) {
        for (const unsigned change : {0x01U, 0x80U, 0xffU}) {
            auto changed = bytes;
            changed[at] ^= static_cast<std::byte>(change);
            try {
                const Gguf file = Gguf::parse(changed, "changed");
                for (const TensorInfo& tensor : file.tensors()) {
                    REQUIRE(tensor.bytes.data() >= changed.data());
                    REQUIRE(tensor.bytes.data() + tensor.bytes.size() <= changed.data() + changed.size());
                }
            } catch (const Error&) {
                ++refused_count;
            }
        }
    }
    CHECK(refused_count > 300);
}

TEST_CASE("What the writer writes, the reader reads") {
    GgufWriter writer;
    writer.add_u32("u32", 5);
    writer.add_u64("u64", kHuge);
    writer.add_f32("f32", -0.5F);
    writer.add_bool("bool", false);
    writer.add_text("text", "a\nb");
    const std::vector<std::string> texts{"", "one"};
    const std::vector<std::int32_t> integers{-1, 2};
    writer.add_texts("texts", texts);
    writer.add_integers("integers", integers);
    const std::uint64_t dims[] = {32, 3};
    CHECK(writer.add_tensor("a", TensorType::Q4_0, dims) == 54);
    CHECK(writer.add_tensor("b", TensorType::F32, std::span(dims, 1)) == 128);
    const auto bytes = whole_file(writer);
    const Gguf file = Gguf::parse(bytes, "written");
    CHECK(file.find("u64")->as_unsigned() == kHuge);
    CHECK(file.find("f32")->as_number() == -0.5);
    CHECK(file.find("bool")->as_bool() == false);
    CHECK(file.find("text")->as_text() == "a\nb");
    CHECK(file.find("integers")->count == 2);
    CHECK(file.find_tensor("b")->bytes.data() == file.find_tensor("a")->bytes.data() + 64);
    CHECK(bytes.size() == writer.file_bytes());

    GgufWriter copy;
    for (const GgufEntry& entry : file.metadata()) {
        copy.add_value(entry.key, entry.value);
    }
    const auto copied = whole_file(copy);
    const Gguf again = Gguf::parse(copied, "copied");
    REQUIRE(again.metadata().size() == file.metadata().size());
    for (const GgufEntry& entry : file.metadata()) {
        CHECK(again.find(entry.key)->bits == entry.value.bits);
        CHECK(again.find(entry.key)->text == entry.value.text);
        CHECK(std::ranges::equal(again.find(entry.key)->bytes, entry.value.bytes));
    }
}

TEST_CASE("perceptd's own encodings need their entries, and fitting ones") {
    const auto file_with = [](std::string_view name, std::uint64_t columns, std::uint64_t row_bytes,
                              std::uint64_t scale_count) {
        GgufWriter writer;
        writer.add_text("perceptd.quantization.t", name);
        writer.add_u64("perceptd.quantization.t.columns", columns);
        const std::uint64_t dims[] = {row_bytes, 4};
        writer.add_tensor("t", TensorType::I8, dims);
        writer.add_tensor("t.row_scale", TensorType::F32, std::span(&scale_count, 1));
        return whole_file(writer);
    };
    struct Case {
        std::string_view name;
        std::uint64_t columns, row_bytes, scale_count;
        const char* reason;  // null: good
    };
    const Case cases[] = {{"int4-g32", 64, 37, 4, nullptr},
                          {"fp8-e4m3", 64, 64, 4, nullptr},
                          {"int4-g32", 64, 38, 4, "does not fit rows of 38"},
                          {"int4-g32", 0, 37, 4, "does not fit"},
                          {"int4-g32", ~0ULL, 37, 4, "does not fit"},
                          {"q4_0", 64, 36, 4, "q4_0"},
                          {"int3", 64, 37, 4, "int3"},
                          {"fp8-e5m2", 64, 64, 3, "one value per row"}};
    for (const Case& one : cases) {
        const auto bytes = file_with(one.name, one.columns, one.row_bytes, one.scale_count);
        const Gguf file = Gguf::parse(bytes, "own");
        INFO(one.name << " " << one.columns);
        if (one.reason == nullptr) {
            const WeightMatrix matrix = matrix_of(file, *file.find_tensor("t"));
            CHECK(matrix.columns == 64);
            CHECK(matrix.rows == 4);
        } else {
            CHECK_THROWS_WITH(matrix_of(file, *file.find_tensor("t")), Catch::Contains(one.reason));
        }
    }
    const Bytes plain = Bytes().start(1, 0).tensor("t", {32}, 24, 0).data(32);
    const Gguf file = Gguf::parse(plain.span(), "plain");
    CHECK_THROWS_WITH(matrix_of(file, *file.find_tensor("t")), Catch::Contains("its meaning is unknown"));
}

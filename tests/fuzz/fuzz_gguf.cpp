// Any bytes as a model file: header, tensor table, decoder shape, vocabulary; read or refused with a reason, never
// more. What is read must lie inside the file, and a vocabulary that is read must encode and give back any text.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>

#include "base/error.hpp"
#include "model/decoder_config.hpp"
#include "model/text_stream.hpp"
#include "model/tokenizer.hpp"

namespace {

using namespace perceptd;
using namespace perceptd::model;

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

/// Runs `part`; a refusal must say why.
void attempt(const std::function<void()>& part) {
    try {
        part();
    } catch (const Error& error) {
        require(error.what()[0] != '\0');
    }
}

void use_vocabulary(const Gguf& file, std::string_view text) {
    const Tokenizer tokenizer(Vocabulary::from(file));
    const Vocabulary& vocabulary = tokenizer.vocabulary();
    const auto ids = tokenizer.encode(text, {true, true});
    for (const TokenId id : ids) {
        require(vocabulary.contains(id));
    }
    TextStream stream(vocabulary);
    for (const TokenId id : ids) {
        static_cast<void>(stream.push(id));
    }
    if (vocabulary.byte_token(0)) {
        require(decode_bytes(vocabulary, tokenizer.encode(text, {false, false})) == text);
    }
    require(!first_difference(vocabulary, vocabulary));
    static_cast<void>(vocabulary.digest());
}

void use_file(std::span<const std::byte> bytes) {
    const Gguf file = Gguf::parse(bytes, "fuzzed");
    for (const TensorInfo& tensor : file.tensors()) {
        require(tensor.bytes.data() >= bytes.data() &&
                tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
        attempt([&] { static_cast<void>(first_non_finite(matrix_of(file, tensor))); });
    }
    attempt([&] { static_cast<void>(read_decoder(file).bytes_per_pass()); });
    const std::size_t text_bytes = std::min<std::size_t>(bytes.size(), 64);
    attempt([&] {
        use_vocabulary(file, {reinterpret_cast<const char*>(bytes.data()) + bytes.size() - text_bytes, text_bytes});
    });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    attempt([&] { use_file(std::as_bytes(std::span(data, size))); });
    return 0;
}

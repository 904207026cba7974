#include "generate/question.hpp"

#include <bit>

#include "base/error.hpp"
#include "model/digest.hpp"
#include "model/utf8.hpp"
#include "store/byte_stream.hpp"

namespace perceptd::generate {
namespace {

constexpr std::uint64_t kForm = 1;
constexpr std::size_t kBiasesMax = 1024;

void write_options(store::ByteWriter& out, const GenerationOptions& options) {
    const SamplerOptions& sampling = options.sampling;
    out.fixed(sampling.seed, 8);
    for (const float value : {sampling.temperature, sampling.top_p, sampling.min_p, sampling.repetition_penalty}) {
        out.fixed(std::bit_cast<std::uint32_t>(value), 4);
    }
    out.varint(sampling.top_k);
    out.varint(sampling.repetition_window);
    out.varint(sampling.biases.size());
    for (const LogitBias& bias : sampling.biases) {
        out.varint(bias.token);
        out.fixed(std::bit_cast<std::uint32_t>(bias.bias), 4);
    }
    out.varint(options.tokens_max);
    out.varint(options.stops.size());
    for (const std::string& stop : options.stops) {
        out.text(stop);
    }
    out.varint(options.continues_text ? 1 : 0);
}

bool read_options(store::ByteReader& in, GenerationOptions& options) {
    SamplerOptions& sampling = options.sampling;
    sampling.seed = in.fixed(8);
    for (float* const value : {&sampling.temperature, &sampling.top_p, &sampling.min_p, &sampling.repetition_penalty}) {
        *value = std::bit_cast<float>(static_cast<std::uint32_t>(in.fixed(4)));
    }
    sampling.top_k = static_cast<std::uint32_t>(in.varint());
    sampling.repetition_window = static_cast<std::uint32_t>(in.varint());
    const std::uint64_t biases = in.varint();
    for (std::uint64_t i = 0; i < biases && in.is_good() && biases <= kBiasesMax; ++i) {
        LogitBias& bias = sampling.biases.emplace_back();
        bias.token = static_cast<std::uint32_t>(in.varint());
        bias.bias = std::bit_cast<float>(static_cast<std::uint32_t>(in.fixed(4)));
    }
    options.tokens_max = in.varint();
    const std::uint64_t stops = in.varint();
    for (std::uint64_t i = 0; i < stops && in.is_good() && stops <= StopStrings::kCountMax; ++i) {
        options.stops.push_back(in.text());
    }
    options.continues_text = in.varint() == 1;
    return in.is_good() && biases <= kBiasesMax && stops <= StopStrings::kCountMax;
}

}  // namespace

void check(const Question& question) {
    if (question.text.empty()) {
        throw Error(ErrorCode::InvalidArgument, "the prompt is empty; say something");
    }
    if (!model::is_utf8(question.text)) {
        throw Error(ErrorCode::InvalidArgument, "the prompt is no UTF-8; convert it first");
    }
    for (const std::string& stop : question.options.stops) {
        if (!model::is_utf8(stop)) {
            throw Error(ErrorCode::InvalidArgument, "a stop string is no UTF-8; it could never come");
        }
    }
    if (question.options.sampling.biases.size() > kBiasesMax) {
        Error error(ErrorCode::InvalidArgument, "too many logit biases; give at most 1024");
        error.limit = kBiasesMax;
        error.used = question.options.sampling.biases.size();
        throw error;
    }
}

std::string encoded(const Question& question) {
    store::ByteWriter out;
    out.varint(kForm);
    out.text(question.version);
    write_options(out, question.options);
    return std::string(out.view());
}

bool decode(std::string_view bytes, Question& question) {
    store::ByteReader in(bytes);
    const bool is_known = in.varint() == kForm;
    question.version = in.text();
    question.has_seed = true;
    question.options = {};
    return is_known && read_options(in, question.options) && in.left() == 0;
}

std::uint64_t sampling_digest(const Question& question) {
    store::ByteWriter out;
    write_options(out, question.options);
    const model::Digest digest = model::sha256_of(out.bytes());
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        value |= std::uint64_t{digest[i]} << (8 * i);
    }
    return value;
}

}  // namespace perceptd::generate

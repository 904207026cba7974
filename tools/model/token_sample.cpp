// Ids of a text follow each other without gaps, so that every sequence is text.
#include "token_sample.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>

#include "base/error.hpp"

namespace perceptd::model_tool {
namespace {

std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::system_error(errno, std::generic_category(), path);
    }
    std::string text(model::Tokenizer::kMaxTextBytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad()) {
        throw std::system_error(errno, std::generic_category(), path);
    }
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
}

std::vector<std::uint32_t> ids_of(const model::DecoderFile& model, const SampleOptions& options) {
    std::vector<std::uint32_t> ids;
    if (options.text_path.empty()) {
        std::mt19937_64 random(options.seed);
        for (std::uint32_t i = 0; i < options.tokens; ++i) {
            ids.push_back(static_cast<std::uint32_t>(random() % model.decoder.config.vocabulary_size));
        }
        return ids;
    }
    for (const auto id : model.tokenizer.encode(text_of(options.text_path))) {
        ids.push_back(static_cast<std::uint32_t>(id));
        if (ids.size() == options.tokens) {
            break;
        }
    }
    return ids;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> token_sample(const model::DecoderFile& model, const SampleOptions& options) {
    const std::uint32_t context = model.decoder.config.context_tokens;
    if (options.sequence < 2 || options.sequence > context) {
        throw Error(ErrorCode::InvalidArgument, "sequences of " + std::to_string(options.sequence) +
                                                    " tokens: this model takes 2 to " + std::to_string(context));
    }
    const std::vector<std::uint32_t> ids = ids_of(model, options);
    std::vector<std::vector<std::uint32_t>> sequences;
    for (std::size_t at = 0; at + 1 < ids.size(); at += options.sequence) {
        const std::size_t end = std::min(ids.size(), at + options.sequence);
        sequences.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                               ids.begin() + static_cast<std::ptrdiff_t>(end));
    }
    if (sequences.empty()) {
        throw Error(ErrorCode::InvalidArgument, "fewer than two tokens; give a longer text or a larger --tokens");
    }
    return sequences;
}

}  // namespace perceptd::model_tool

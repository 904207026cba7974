// The golden vocabularies as GGUF files, with room for changes.
#pragma once

#include <string>
#include <vector>

#include "gguf_bytes.hpp"
#include "model/vocabulary.hpp"
#include "tokenizer_golden.hpp"

namespace perceptd::model::test {

struct VocabularyParts {
    std::string model = "llama";
    std::string pre;
    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<std::int32_t> kinds;
    std::vector<std::string> merges;
    std::vector<std::pair<std::string, std::uint32_t>> ids;
    std::vector<std::pair<std::string, bool>> flags;

    [[nodiscard]] std::vector<std::byte> file() const {
        GgufWriter writer;
        const auto key = [](const std::string& name) { return "tokenizer.ggml." + name; };
        writer.add_text(key("model"), model);
        if (!pre.empty()) {
            writer.add_text(key("pre"), pre);
        }
        writer.add_texts(key("tokens"), tokens);
        if (!scores.empty()) {
            writer.add_floats(key("scores"), scores);
        }
        if (!kinds.empty()) {
            writer.add_integers(key("token_type"), kinds);
        }
        if (!merges.empty()) {
            writer.add_texts(key("merges"), merges);
        }
        for (const auto& [name, value] : ids) {
            writer.add_u32(key(name), value);
        }
        for (const auto& [name, value] : flags) {
            writer.add_bool(key(name), value);
        }
        return whole_file(writer);
    }
    [[nodiscard]] Vocabulary read() const {
        const auto bytes = file();
        return Vocabulary::from(Gguf::parse(bytes, "vocabulary"));
    }
    void add(std::string token, std::int32_t kind) {
        tokens.push_back(std::move(token));
        scores.resize(scores.empty() ? 0 : tokens.size());
        kinds.resize(tokens.size() - 1, 1);
        kinds.push_back(kind);
    }
};

inline VocabularyParts spm_parts() {
    VocabularyParts parts;
    parts.tokens.assign(kSpmPieces.begin(), kSpmPieces.end());
    parts.scores = kSpmScores;
    parts.kinds = kSpmKinds;
    parts.flags = {{"add_bos_token", false}};
    return parts;
}

inline VocabularyParts bpe_parts(const std::string& pre) {
    VocabularyParts parts;
    parts.model = "gpt2";
    parts.pre = pre;
    parts.tokens.assign(kBpePieces.begin(), kBpePieces.end());
    parts.merges.assign(kBpeMerges.begin(), kBpeMerges.end());
    return parts;
}

}  // namespace perceptd::model::test

// A model with random weights and a vocabulary, small enough to answer in milliseconds, served like any other; and a
// source that has it. Owns its file while it lives.
#pragma once

#include <memory>
#include <string>

#include "../store/store_folder.hpp"
#include "generate/served_model.hpp"
#include "model/digest.hpp"
#include "random_decoder.hpp"

namespace perceptd::generate::test {

constexpr std::uint32_t kContextTokens = 256;

inline std::string make_model(const std::string& path, model::Encoding encoding = model::Encoding::Q8_0) {
    const model::DecoderConfig config{.context_tokens = kContextTokens,
                                      .width = 64,
                                      .layer_count = 1,
                                      .head_count = 2,
                                      .kv_head_count = 1,
                                      .head_dim = 32,
                                      .feed_forward_width = 64,
                                      .vocabulary_size = 512,
                                      .norm_epsilon = 1e-5F,
                                      .rope = {.dimension_count = 32}};
    model_tool::make_random_decoder(config, encoding, 1, path);
    return path;
}

inline std::shared_ptr<ServedModel> serve(const std::string& path, engine::WorkerTeam& team,
                                          const std::string& draft = {}) {
    const TextModelOptions options{
        .context_tokens_max = kContextTokens, .batch_tokens_max = 32, .cache_tokens = 4 * kContextTokens};
    auto model = std::make_shared<ServedModel>();
    model->name = "small";
    model->version = "1.0.0";
    model->digest = "d1";
    model->prompt_form = "{prompt}";
    model->target = std::make_unique<TextModel>(path, team, options);
    if (!draft.empty()) {
        model->draft = std::make_unique<TextModel>(draft, team, options);
    }
    return model;
}

}  // namespace perceptd::generate::test

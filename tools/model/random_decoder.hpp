// Decoders with random weights for benchmarks and tests: any shape, the same bytes for the same seed on any machine.
// Owns nothing. Never claims to know anything: the text they make is noise, of a known randomness.
//
// Scale of the weights: every norm's input has a root mean square of about 1 and the embedding is small beside what the
// layers add, so that no token simply repeats. The logits are then close to normal with standard deviation
// sqrt(2 ln V) / 0.55 for V tokens; such a random-energy model has (psi(1) - psi(1 - 0.55)) / ln 2 = 2.3 bits of
// next-token entropy on average for large V, and stays within 1 to 4 bits for V from 512 to 128k.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/decoder_config.hpp"

namespace perceptd::model_tool {

/// "15m" (256 x 8 layers), "120m" (768 x 12), "1.1b" (2048 x 22, 4 KV heads).
[[nodiscard]] std::optional<model::DecoderConfig> named_shape(std::string_view name);

/// What keeps `config` from being made with `encoding`; empty if nothing.
[[nodiscard]] std::string shape_problem(const model::DecoderConfig& config, model::Encoding encoding);

/// Writes the model to `path`, in memory that does not depend on its size. Throws std::system_error or Error.
void make_random_decoder(const model::DecoderConfig& config, model::Encoding encoding, std::uint64_t seed,
                         const std::string& path);

}  // namespace perceptd::model_tool

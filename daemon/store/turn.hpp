// One turn of a dialogue as the store knows it: who asked which model what, and the token ids of the answer so far.
// Owns its values. Never interprets a token or the request: those are the asking stage's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perceptd::store {

/// Everything that is fixed when a turn begins.
struct TurnStart {
    std::uint64_t id = 0;  ///< unique for ever, 1 to 2^53 - 1
    std::uint32_t uid = 0;
    std::uint64_t thread = 0;  ///< turns of one dialogue; 0: a dialogue of one turn
    std::string model;
    std::string model_digest;  ///< what must be the same for the same tokens
    std::vector<std::uint32_t> prompt;
    std::uint64_t rng_key = 0;
    std::uint64_t sampler_digest = 0;
    std::string request;             ///< opaque to the store
    std::int64_t started_at_ms = 0;  ///< CLOCK_REALTIME, for people
};

/// A turn out of the store. Unfinished turns, also those that a crash cut short, are interrupted.
struct StoredTurn {
    TurnStart start;
    std::vector<std::uint32_t> tokens;
    std::string finish;  ///< empty: interrupted
    std::int64_t ended_at_ms = 0;

    [[nodiscard]] bool is_interrupted() const noexcept { return finish.empty(); }
};

/// TurnStart but for the prompt, which a record holds as its tokens.
[[nodiscard]] std::string encoded(const TurnStart& start);
/// False when `text` is not what encoded() makes.
[[nodiscard]] bool decode(std::string_view text, TurnStart& start);

/// Now on CLOCK_REALTIME: for people and retention, never for order.
[[nodiscard]] std::int64_t wall_ms() noexcept;

}  // namespace perceptd::store

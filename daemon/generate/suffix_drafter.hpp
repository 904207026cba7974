// Session suffix: the longest end of the text that stood anywhere earlier in the client's session, by a suffix
// automaton that grows with every token; what followed there is the guess. Finds matches of any length, over all turns.
// Owns the session's tokens up to a bound, then forgets the older half. Never shared between clients.
#pragma once

#include <vector>

#include "generate/drafter.hpp"

namespace perceptd::generate {

/// One per client. draft() costs constant time per new token on average.
class SuffixDrafter final : public Drafter {
public:
    /// `session_tokens_max`: how much text is remembered, about 80 bytes each; a generation may raise it.
    explicit SuffixDrafter(std::size_t session_tokens_max = 8192) : text_max_(session_tokens_max) {}

    void begin(std::size_t tokens_max) override;
    [[nodiscard]] std::size_t draft(std::span<const std::uint32_t> context,
                                    std::span<std::uint32_t> drafted) noexcept override;

    [[nodiscard]] std::size_t remembered_tokens() const noexcept { return text_.size(); }
    /// Length of the match that the last draft() copied from or found too short.
    [[nodiscard]] std::size_t match_tokens() const noexcept { return match_length_; }

private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    static constexpr std::uint32_t kRoot = 0;
    static constexpr std::size_t kShortestMatch = 2;

    struct State {
        std::uint32_t length = 0;
        std::uint32_t link = kNone;
        std::uint32_t last_end = 0;  // where the newest known occurrence ends
        std::uint32_t first_edge = kNone;
    };
    struct Edge {
        std::uint32_t from = 0;
        std::uint32_t token = 0;
        std::uint32_t to = 0;
        std::uint32_t next = kNone;  // of the same state
    };

    void rebuild(std::size_t text_max);
    void feed(std::uint32_t token) noexcept;
    void extend(std::uint32_t token) noexcept;
    std::uint32_t split(std::uint32_t parent, std::uint32_t child, std::uint32_t token) noexcept;
    [[nodiscard]] std::size_t slot_of(std::uint32_t from, std::uint32_t token) const noexcept;
    [[nodiscard]] std::uint32_t target_of(std::uint32_t from, std::uint32_t token) const noexcept;
    void add_edge(std::uint32_t from, std::uint32_t token, std::uint32_t to) noexcept;

    std::size_t text_max_;
    std::vector<std::uint32_t> text_;
    std::size_t context_begin_ = 0;  // the newest context is text_[context_begin_, end)
    bool is_new_ = true;
    std::vector<State> states_;
    std::vector<Edge> edges_;
    std::vector<std::uint32_t> slots_;  // of edges, by state and token
    std::uint32_t last_ = kRoot;        // the state of the whole text
    std::uint32_t match_ = kRoot;       // the state of the longest end that stood earlier
    std::size_t match_length_ = 0;
};

}  // namespace perceptd::generate

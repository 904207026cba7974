// Turns in the database: the tokens in rows of chunks, the newest turn of a thread, retention and deletion. Borrows the
// database. Never orders turns by the clock: a number that only grows says which came first.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "store/database.hpp"
#include "store/record.hpp"

namespace perceptd::store {

struct TurnSummary {
    std::uint64_t id = 0;
    std::uint64_t thread = 0;
    std::string model;
    std::int64_t started_at_ms = 0;
    std::uint64_t token_count = 0;
    std::string finish;  ///< empty: interrupted
};

/// Thread-bound. Throws what Statement throws.
class TurnTable {
public:
    static constexpr std::size_t kChunkTokens = 256;

    explicit TurnTable(Database& database) : database_(&database) {}

    /// Takes a journal in, in one transaction: a new turn, or more tokens of one that is there. The same journal twice
    /// changes nothing.
    void fold(const JournalContents& journal, std::int64_t now_ms);
    [[nodiscard]] std::optional<StoredTurn> find(std::uint64_t id);
    /// The newest finished turn of the thread.
    [[nodiscard]] std::optional<StoredTurn> newest(std::uint32_t uid, std::uint64_t thread);
    /// Newest first, at most `count`.
    [[nodiscard]] std::vector<TurnSummary> list(std::uint32_t uid, std::size_t count);
    /// False when the user has no such turn.
    bool remove(std::uint32_t uid, std::uint64_t id);
    /// How many turns of the user, or of everybody, went.
    std::size_t remove_all(std::optional<std::uint32_t> uid);
    /// Removes turns that ended before `ended_before_ms`, and the oldest until the file has room. How many went.
    std::size_t prune(std::int64_t ended_before_ms);

private:
    std::optional<StoredTurn> read(Statement& row);
    bool remove_oldest();
    Database* database_;
};

}  // namespace perceptd::store

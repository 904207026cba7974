#include "store/turn_table.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace perceptd::store {
namespace {

constexpr const char* kColumns = "id, prompt, start, rng_key, sampler_digest, ended_at_ms, finish";

std::string packed(std::span<const std::uint32_t> ids) {
    ByteWriter out;
    out.ids(ids);
    return std::string(out.view());
}

}  // namespace

void TurnTable::fold(const JournalContents& journal, std::int64_t now_ms) {
    const StoredTurn& turn = journal.turn;
    const TurnStart& start = turn.start;
    Transaction transaction(*database_);
    database_
        ->prepare(
            "INSERT INTO turns(id, uid, thread, prompt, start, rng_key, sampler_digest, ended_at_ms, finish)"
            " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET ended_at_ms = excluded.ended_at_ms,"
            " finish = excluded.finish")
        .bind(start.id)
        .bind(start.uid)
        .bind(start.thread)
        .bind_bytes(packed(start.prompt))
        .bind_bytes(encoded(start))
        .bind(start.rng_key)
        .bind(start.sampler_digest)
        .bind(now_ms)
        .bind(std::string_view(turn.finish))
        .run();
    for (std::size_t at = 0; at < turn.tokens.size(); at += kChunkTokens) {
        const auto ids = std::span(turn.tokens).subspan(at, std::min(kChunkTokens, turn.tokens.size() - at));
        database_->prepare("INSERT OR REPLACE INTO chunks(turn, first, ids) VALUES(?, ?, ?)")
            .bind(start.id)
            .bind(journal.first_token + at)
            .bind_bytes(packed(ids))
            .run();
    }
    transaction.commit();
}

std::optional<StoredTurn> TurnTable::read(Statement& row) {
    StoredTurn turn;
    const std::string prompt_bytes = row.text(1);
    ByteReader in(prompt_bytes);
    turn.start.id = static_cast<std::uint64_t>(row.number(0));
    turn.start.prompt = in.ids();
    turn.start.rng_key = static_cast<std::uint64_t>(row.number(3));
    turn.start.sampler_digest = static_cast<std::uint64_t>(row.number(4));
    turn.ended_at_ms = row.number(5);
    turn.finish = row.text(6);
    if (!in.is_good() || !decode(row.text(2), turn.start)) {
        throw Error(ErrorCode::Internal,
                    "turn " + std::to_string(turn.start.id) + " in the store is damaged; delete it");
    }
    Statement chunks = database_->prepare("SELECT first, ids FROM chunks WHERE turn = ? ORDER BY first");
    chunks.bind(turn.start.id);
    while (chunks.step()) {
        const std::string bytes = chunks.text(1);
        ByteReader ids(bytes);
        const std::vector<std::uint32_t> tokens = ids.ids();
        const auto first = static_cast<std::uint64_t>(chunks.number(0));
        if (!ids.is_good()) {
            throw Error(ErrorCode::Internal,
                        "turn " + std::to_string(turn.start.id) + " in the store is damaged; delete it");
        }
        if (first > turn.tokens.size()) {
            turn.finish.clear();  // the part before went with a damaged file: resuming makes it anew, the same
            break;
        }
        // A turn that was resumed and then cut short again may overlap: the same tokens, by construction.
        turn.tokens.resize(first);
        turn.tokens.insert(turn.tokens.end(), tokens.begin(), tokens.end());
    }
    return turn;
}

std::optional<StoredTurn> TurnTable::find(std::uint64_t id) {
    Statement row = database_->prepare(std::string("SELECT ") + kColumns + " FROM turns WHERE id = ?");
    row.bind(id);
    return row.step() ? read(row) : std::nullopt;
}

std::optional<StoredTurn> TurnTable::newest(std::uint32_t uid, std::uint64_t thread) {
    Statement row = database_->prepare(std::string("SELECT ") + kColumns +
                                       " FROM turns WHERE uid = ? AND thread = ? AND finish <> ''"
                                       " ORDER BY number DESC LIMIT 1");
    row.bind(uid).bind(thread);
    return row.step() ? read(row) : std::nullopt;
}

std::vector<TurnSummary> TurnTable::list(std::uint32_t uid, std::size_t count) {
    std::vector<TurnSummary> summaries;
    Statement row = database_->prepare(std::string("SELECT ") + kColumns +
                                       " FROM turns WHERE uid = ? ORDER BY number DESC LIMIT ?");
    row.bind(uid).bind(std::uint64_t{count});
    while (row.step()) {
        const auto turn = read(row);
        summaries.push_back({turn->start.id, turn->start.thread, turn->start.model, turn->start.started_at_ms,
                             turn->tokens.size(), turn->finish});
    }
    return summaries;
}

bool TurnTable::remove(std::uint32_t uid, std::uint64_t id) {
    database_->prepare("DELETE FROM turns WHERE id = ? AND uid = ?").bind(id).bind(uid).run();
    return database_->changed_count() > 0;
}

std::size_t TurnTable::remove_all(std::optional<std::uint32_t> uid) {
    database_->prepare("DELETE FROM turns WHERE ?1 < 0 OR uid = ?1").bind(uid ? std::int64_t{*uid} : -1).run();
    return static_cast<std::size_t>(database_->changed_count());
}

bool TurnTable::remove_oldest() {
    database_->run("DELETE FROM turns WHERE number = (SELECT min(number) FROM turns)");
    return database_->changed_count() > 0;
}

std::size_t TurnTable::prune(std::int64_t ended_before_ms) {
    database_->prepare("DELETE FROM turns WHERE ended_at_ms < ?").bind(ended_before_ms).run();
    auto count = static_cast<std::size_t>(database_->changed_count());
    const std::size_t most = database_->size_bytes_max() - database_->size_bytes_max() / 4;
    while (database_->used_bytes() > most && remove_oldest()) {
        ++count;
    }
    return count;
}

}  // namespace perceptd::store

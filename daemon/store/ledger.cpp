#include "store/ledger.hpp"

#include <array>
#include <utility>

namespace perceptd::store {
namespace {

constexpr std::int64_t kDayMs = 24LL * 3600 * 1000;
constexpr std::array<std::uint64_t, 6> kTokenMilestones{1000, 10'000, 100'000, 1'000'000, 10'000'000, 100'000'000};
constexpr std::array<std::uint64_t, 4> kSessionMilestones{10, 100, 1000, 10'000};
constexpr std::array<std::uint64_t, 4> kDayMilestones{7, 30, 100, 365};

constexpr const char* kOwn = " WHERE (?1 < 0 OR uid = ?1)";

/// For kOwn: nobody's number stands for everybody.
std::int64_t bound(LedgerOwner owner) {
    return owner ? std::int64_t{*owner} : -1;
}

}  // namespace

void Ledger::add(std::uint32_t uid, std::int64_t now_ms, int sessions, int turns, std::uint64_t tokens) {
    database_
        ->prepare(
            "INSERT INTO days(uid, day, sessions, turns, tokens) VALUES(?, ?, ?, ?, ?) ON CONFLICT(uid, day) DO"
            " UPDATE SET sessions = sessions + excluded.sessions, turns = turns + excluded.turns,"
            " tokens = tokens + excluded.tokens")
        .bind(uid)
        .bind(now_ms / kDayMs)
        .bind(std::int64_t{sessions})
        .bind(std::int64_t{turns})
        .bind(tokens)
        .run();
    note_milestones(uid, now_ms);
}

void Ledger::add_answer(std::uint32_t uid, const std::string& model, std::uint64_t tokens, bool is_new_turn,
                        std::int64_t now_ms) {
    Transaction transaction(*database_);
    add(uid, now_ms, 0, is_new_turn ? 1 : 0, tokens);
    database_
        ->prepare(
            "INSERT INTO models(uid, model, turns, tokens) VALUES(?, ?, ?, ?) ON CONFLICT(uid, model) DO UPDATE"
            " SET turns = turns + excluded.turns, tokens = tokens + excluded.tokens")
        .bind(uid)
        .bind(std::string_view(model))
        .bind(std::int64_t{is_new_turn ? 1 : 0})
        .bind(tokens)
        .run();
    transaction.commit();
}

void Ledger::note_milestones(std::uint32_t uid, std::int64_t now_ms) {
    Statement totals = database_->prepare("SELECT sum(tokens), sum(sessions), count(*) FROM days WHERE uid = ?");
    totals.bind(uid);
    if (!totals.step()) {
        return;
    }
    const auto reach = [&](const char* kind, std::int64_t total, const auto& values) {
        for (const std::uint64_t value : values) {
            if (total >= static_cast<std::int64_t>(value)) {
                database_
                    ->prepare("INSERT OR IGNORE INTO milestones(uid, kind, value, reached_at_ms) VALUES(?, ?, ?, ?)")
                    .bind(uid)
                    .bind(std::string_view(kind))
                    .bind(value)
                    .bind(now_ms)
                    .run();
            }
        }
    };
    reach("tokens", totals.number(0), kTokenMilestones);
    reach("sessions", totals.number(1), kSessionMilestones);
    reach("active_days", totals.number(2), kDayMilestones);
}

std::optional<Milestone> Ledger::take_milestone(std::uint32_t uid, std::int64_t now_ms) {
    Statement last = database_->prepare("SELECT max(told_at_ms) FROM milestones WHERE uid = ?");
    last.bind(uid);
    if (last.step() && !last.is_null(0)) {
        if (now_ms < last.number(0)) {
            // The clock was set back: the pause begins anew instead of lasting until the old time comes again.
            database_->prepare("UPDATE milestones SET told_at_ms = ? WHERE uid = ? AND told_at_ms > ?")
                .bind(now_ms)
                .bind(uid)
                .bind(now_ms)
                .run();
            return std::nullopt;
        }
        if (now_ms - last.number(0) < kMilestonePauseMs) {
            return std::nullopt;
        }
    }
    Milestone milestone;
    {
        Statement due = database_->prepare(
            "SELECT kind, value, reached_at_ms FROM milestones WHERE uid = ? AND told_at_ms IS NULL"
            " ORDER BY reached_at_ms, kind, value DESC LIMIT 1");
        due.bind(uid);
        if (!due.step()) {
            return std::nullopt;
        }
        milestone = {due.text(0), static_cast<std::uint64_t>(due.number(1)), due.number(2)};
    }
    // The smaller ones of its kind are told with it.
    database_
        ->prepare(
            "UPDATE milestones SET told_at_ms = ? WHERE uid = ? AND kind = ? AND value <= ?"
            " AND told_at_ms IS NULL")
        .bind(now_ms)
        .bind(uid)
        .bind(std::string_view(milestone.kind))
        .bind(milestone.value)
        .run();
    return milestone;
}

std::int64_t Ledger::begin_sensor_use(const SensorUse& use) {
    Statement insert = database_->prepare(
        "INSERT INTO sensor_uses(uid, pid, program, sensor, from_ms, is_over) VALUES(?, ?, ?, ?, ?, 0) RETURNING "
        "number");
    insert.bind(use.uid)
        .bind(use.pid)
        .bind(std::string_view(use.program))
        .bind(std::string_view(use.sensor))
        .bind(use.from_ms);
    insert.step();
    const std::int64_t number = insert.number(0);
    insert.run();
    if (number % 64 == 0) {
        database_->prepare("DELETE FROM sensor_uses WHERE number <= ? AND is_over")
            .bind(number - static_cast<std::int64_t>(kSensorUsesMax))
            .run();
    }
    return number;
}

void Ledger::end_sensor_use(std::int64_t number, std::int64_t to_ms) {
    database_->prepare("UPDATE sensor_uses SET to_ms = max(?, from_ms), is_over = 1 WHERE number = ?")
        .bind(to_ms)
        .bind(number)
        .run();
}

void Ledger::close_left_open() {
    database_->run("UPDATE sensor_uses SET is_over = 1 WHERE NOT is_over");
}

LedgerSummary Ledger::read(LedgerOwner owner) {
    LedgerSummary summary;
    Statement totals = database_->prepare(
        std::string("SELECT sum(sessions), sum(turns), sum(tokens), count(DISTINCT day) FROM days") + kOwn);
    totals.bind(bound(owner));
    if (totals.step()) {
        summary.sessions = static_cast<std::uint64_t>(totals.number(0));
        summary.turns = static_cast<std::uint64_t>(totals.number(1));
        summary.tokens = static_cast<std::uint64_t>(totals.number(2));
        summary.active_days = static_cast<std::uint64_t>(totals.number(3));
    }
    Statement models = database_->prepare(std::string("SELECT model, sum(turns), sum(tokens) FROM models") + kOwn +
                                          " GROUP BY model ORDER BY model");
    models.bind(bound(owner));
    while (models.step()) {
        summary.models.push_back({models.text(0), static_cast<std::uint64_t>(models.number(1)),
                                  static_cast<std::uint64_t>(models.number(2))});
    }
    Statement uses =
        database_->prepare(std::string("SELECT uid, pid, program, sensor, from_ms, to_ms, is_over FROM sensor_uses") +
                           kOwn + " ORDER BY number DESC LIMIT " + std::to_string(kSensorUsesShownMax));
    uses.bind(bound(owner));
    while (uses.step()) {
        summary.sensor_uses.push_back({static_cast<std::uint32_t>(uses.number(0)),
                                       static_cast<std::uint32_t>(uses.number(1)), uses.text(2), uses.text(3),
                                       uses.number(4), uses.is_null(5) ? std::nullopt : std::optional(uses.number(5)),
                                       uses.number(6) != 0});
    }
    Statement milestones = database_->prepare(std::string("SELECT kind, value, max(reached_at_ms) FROM milestones") +
                                              kOwn + " GROUP BY kind, value ORDER BY kind, value");
    milestones.bind(bound(owner));
    while (milestones.step()) {
        summary.milestones.push_back(
            {milestones.text(0), static_cast<std::uint64_t>(milestones.number(1)), milestones.number(2)});
    }
    return summary;
}

void Ledger::erase(LedgerOwner owner) {
    Transaction transaction(*database_);
    for (const char* const table : {"days", "models", "milestones", "sensor_uses"}) {
        const bool has_open = std::string_view(table) == "sensor_uses";
        database_->prepare(std::string("DELETE FROM ") + table + kOwn + (has_open ? " AND is_over" : ""))
            .bind(bound(owner))
            .run();
    }
    transaction.commit();
    database_->checkpoint();
}

void Ledger::prune(std::int64_t from_ms) {
    database_->prepare("DELETE FROM sensor_uses WHERE is_over AND from_ms < ?").bind(from_ms).run();
}

}  // namespace perceptd::store

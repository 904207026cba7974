// What each user has used, kept on this device alone: sessions, turns, tokens, models, active days, who held which
// sensor from when to when, and milestones. Borrows the database. Never holds a word of what was said, and never tells
// one user of another.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/database.hpp"

namespace perceptd::store {

struct ModelUse {
    std::string model;
    std::uint64_t turns = 0;
    std::uint64_t tokens = 0;
};

struct SensorUse {
    std::uint32_t uid = 0;
    std::uint32_t pid = 0;
    std::string program;
    std::string sensor;
    std::int64_t from_ms = 0;           ///< CLOCK_REALTIME
    std::optional<std::int64_t> to_ms;  ///< nothing: it goes on, or the daemon died before it could say
    bool is_over = false;
};

struct Milestone {
    std::string kind;  ///< "tokens", "sessions" or "active_days"
    std::uint64_t value = 0;
    std::int64_t reached_at_ms = 0;
};

struct LedgerSummary {
    std::uint64_t sessions = 0;
    std::uint64_t turns = 0;
    std::uint64_t tokens = 0;
    std::uint64_t active_days = 0;  ///< days (UTC) with a session or an answer
    std::vector<ModelUse> models;
    std::vector<SensorUse> sensor_uses;  ///< newest first, at most kSensorUsesShownMax
    std::vector<Milestone> milestones;
};

/// Whose rows: one user's, or everybody's.
using LedgerOwner = std::optional<std::uint32_t>;

/// Thread-bound. Throws what Statement throws.
class Ledger {
public:
    static constexpr std::int64_t kMilestonePauseMs = 48LL * 3600 * 1000;
    static constexpr std::size_t kSensorUsesShownMax = 200;
    static constexpr std::size_t kSensorUsesMax = 10000;

    explicit Ledger(Database& database) : database_(&database) {}

    void add_session(std::uint32_t uid, std::int64_t now_ms) { add(uid, now_ms, 1, 0, 0); }
    /// `is_new_turn` is false when an earlier turn went on.
    void add_answer(std::uint32_t uid, const std::string& model, std::uint64_t tokens, bool is_new_turn,
                    std::int64_t now_ms);
    /// Gives back the row's number for end_sensor_use().
    std::int64_t begin_sensor_use(const SensorUse& use);
    void end_sensor_use(std::int64_t number, std::int64_t to_ms);
    /// Uses that an earlier daemon left open are over, nobody knows since when.
    void close_left_open();
    /// Nothing to tell, or a milestone that is told now: at most one in 48 h, also when the clock was set back.
    [[nodiscard]] std::optional<Milestone> take_milestone(std::uint32_t uid, std::int64_t now_ms);

    [[nodiscard]] LedgerSummary read(LedgerOwner owner);
    /// Everything but the sensors that are held right now.
    void erase(LedgerOwner owner);
    /// Forgets sensor uses that began before `from_ms`.
    void prune(std::int64_t from_ms);

private:
    void add(std::uint32_t uid, std::int64_t now_ms, int sessions, int turns, std::uint64_t tokens);
    void note_milestones(std::uint32_t uid, std::int64_t now_ms);
    Database* database_;
};

}  // namespace perceptd::store

// What must outlive the daemon: the journals of running turns, the database of past ones, the ledger. Owns the folder's
// lock, the database and one thread, on which every fsync and every SQL statement runs. Never lets the main thread wait
// for a disk, never loses a token that append() has taken, and never stops the daemon: a store that cannot be opened
// says why to whoever needs it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "store/journal.hpp"
#include "store/ledger.hpp"
#include "store/turn_table.hpp"

namespace perceptd::store {

struct StoreOptions {
    std::string folder;  ///< made (0700) if it is missing
    std::size_t size_bytes_max = 64U << 20;
    std::int64_t retention_ms = 0;  ///< turns and sensor uses are forgotten after it; 0: never
    FileCalls calls;
};

/// What work on the store thread sees.
struct StoreTables {
    Database& database;
    TurnTable turns;
    Ledger ledger;
};

/// Threads: any, but for what is said. A mutex guards the queue: no caller is real-time.
class Store {
public:
    using Work = std::function<void(StoreTables&)>;
    static constexpr std::int64_t kSyncAfterNs = 250'000'000;
    static constexpr std::uint64_t kSyncAfterTokens = 8;

    /// Starts the thread, which opens the database and takes in the journals of turns that a crash cut short. Throws
    /// std::system_error only when there is no thread or descriptor.
    explicit Store(StoreOptions options);
    /// Makes everything safe that was written.
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    /// A journal for a turn that begins or goes on. Not the main thread: waits until the store is open, and writes.
    /// Throws Error that says why nothing can be kept, and what to do.
    [[nodiscard]] std::shared_ptr<Journal> begin(TurnStart start, std::uint64_t first_token);
    /// `journal` was appended to: it will be synchronized in time. Cheap.
    void written(const std::shared_ptr<Journal>& journal);
    /// Nothing more will be appended: the turn moves into the database, soon.
    void close(std::shared_ptr<Journal> journal);
    /// The turn `id` with all its tokens, also while it runs. Not the main thread: waits. Throws as begin().
    [[nodiscard]] std::optional<StoredTurn> find(std::uint64_t id);

    /// Runs `work` on the store thread, some time; what it throws is logged. Dropped when the store is not open.
    void post(Work work);
    /// The same, and then `done` on the main thread (see reply_fd) with the error, if any.
    void ask(Work work, std::function<void(std::exception_ptr)> done);
    /// The same and waits. Not the main thread. Throws what `work` throws.
    void run(Work work);
    /// Readable when replies wait; run_replies() is for the main thread.
    [[nodiscard]] int reply_fd() const noexcept { return replies_ready_.borrow(); }
    void run_replies();

    /// Why nothing is kept; empty: the store is open. Waits while it is being opened.
    [[nodiscard]] std::string unavailable_reason();
    [[nodiscard]] std::uint64_t sync_count() const noexcept { return sync_count_.load(std::memory_order_relaxed); }

private:
    struct Dirty {
        std::shared_ptr<Journal> journal;
        std::int64_t since_ns;
        bool is_new;
    };
    struct Open;  ///< folder, lock and database; of the store thread

    void serve();
    void open();
    void recover();
    void fold_file(std::uint64_t turn);
    void fold(const JournalContents& contents);
    void prune();
    void sync_due(std::unique_lock<std::mutex>& lock);
    [[nodiscard]] bool is_due(std::int64_t now_ns) const noexcept;
    void require_open();
    void enqueue(std::function<void()> operation);

    StoreOptions options_;
    UniqueFd replies_ready_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> operations_;
    std::vector<Dirty> dirty_;
    std::set<std::uint64_t> running_;  ///< turns whose journals are written right now
    std::vector<std::function<void()>> replies_;
    bool stops_ = false;
    bool is_settled_ = false;  ///< open, or known to be unavailable
    std::string unavailable_;
    std::unique_ptr<Open> open_;
    std::atomic<std::uint64_t> sync_count_{0};
    std::thread thread_;
};

}  // namespace perceptd::store

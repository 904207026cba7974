#include "store/store.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/event_fd.hpp"
#include "base/log.hpp"

namespace perceptd::store {
namespace {

constexpr std::string_view kJournalSuffix = ".journal";
constexpr const char* kDamagedJournal = "damaged";  // one is kept, for whoever wants to look
constexpr off_t kJournalBytesMax = off_t{64} << 20;

/// The turn whose journal `name` is; 0: none.
std::uint64_t turn_of(std::string_view name) noexcept {
    std::uint64_t id = 0;
    if (!name.ends_with(kJournalSuffix)) {
        return 0;
    }
    const std::string_view digits = name.substr(0, name.size() - kJournalSuffix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    return error == std::errc() && end == digits.data() + digits.size() ? id : 0;
}

UniqueFd open_folder(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        throw_errno("mkdir", path);
    }
    UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat status {};
    if (!folder || ::fstat(folder.borrow(), &status) != 0) {
        throw_errno("open", path);
    }
    if (status.st_uid != ::geteuid() || (status.st_mode & 0022) != 0) {
        throw Error(ErrorCode::NotAuthorized, path + " must belong to perceptd's user, and nobody else may write it");
    }
    if (::flock(folder.borrow(), LOCK_EX | LOCK_NB) != 0) {
        throw Error(ErrorCode::Busy, "another perceptd keeps its turns in " + path + "; end it first");
    }
    return folder;
}

/// The bytes of the file; nothing when there is none.
std::optional<std::vector<std::byte>> read_file(int folder_fd, const std::string& name) {
    const UniqueFd file(::openat(folder_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file && errno == ENOENT) {
        return std::nullopt;
    }
    struct stat status {};
    if (!file || ::fstat(file.borrow(), &status) != 0) {
        throw_errno("open", name);
    }
    if (!S_ISREG(status.st_mode) || status.st_size > kJournalBytesMax) {
        throw Error(ErrorCode::Internal, name + " is no journal of this store: longer than any, or no file");
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
    std::size_t at = 0;
    while (at < bytes.size()) {
        const ssize_t count = ::read(file.borrow(), bytes.data() + at, bytes.size() - at);
        if (count < 0) {
            throw_errno("read", name);
        }
        if (count == 0) {
            bytes.resize(at);
        }
        at += static_cast<std::size_t>(count);
    }
    return bytes;
}

}  // namespace

struct Store::Open {
    UniqueFd folder;
    Database database;
    StoreTables tables{database, TurnTable(database), Ledger(database)};

    Open(UniqueFd folder_fd, const std::string& path, std::size_t size_bytes_max)
        : folder(std::move(folder_fd)), database(path + "/perceptd.db", size_bytes_max) {}
};

Store::Store(StoreOptions options) : options_(std::move(options)), replies_ready_(make_event()) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the main thread's
    thread_ = std::thread([this] { serve(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Store::~Store() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Store::serve() {
    ::pthread_setname_np(::pthread_self(), "store");
    std::string reason;
    try {
        open();
    } catch (const std::exception& error) {
        reason = error.what();
        log::error("store", "nothing will be kept: " + reason);
    }
    std::unique_lock lock(mutex_);
    is_settled_ = true;
    unavailable_ = reason;
    changed_.notify_all();
    while (true) {
        const std::int64_t now_ns = monotonic_ns();
        if (is_due(now_ns) || (stops_ && operations_.empty() && !dirty_.empty())) {
            sync_due(lock);
        } else if (!operations_.empty()) {
            const auto operation = std::move(operations_.front());
            operations_.pop_front();
            lock.unlock();
            operation();
            lock.lock();
        } else if (stops_) {
            return;
        } else if (dirty_.empty()) {
            changed_.wait(lock);
        } else {
            const std::int64_t due_ns = dirty_.front().since_ns + kSyncAfterNs;  // the first is the oldest
            changed_.wait_for(lock, std::chrono::nanoseconds(std::max<std::int64_t>(due_ns - now_ns, 1000)));
        }
    }
}

bool Store::is_due(std::int64_t now_ns) const noexcept {
    return std::any_of(dirty_.begin(), dirty_.end(), [&](const Dirty& item) {
        return now_ns - item.since_ns >= kSyncAfterNs ||
               item.journal->written_tokens() - item.journal->synced_tokens() >= kSyncAfterTokens;
    });
}

void Store::sync_due(std::unique_lock<std::mutex>& lock) {
    const std::vector<Dirty> due = std::exchange(dirty_, {});  // all: one wake-up for several turns
    lock.unlock();
    for (const Dirty& item : due) {
        try {
            item.journal->sync();
            if (item.is_new && open_ && ::fsync(open_->folder.borrow()) != 0) {
                throw_errno("fsync", options_.folder);
            }
            sync_count_.fetch_add(1, std::memory_order_relaxed);
        } catch (const std::exception& error) {
            log::error("store", std::string("a turn ends because its tokens cannot be kept: ") + error.what());
        }
    }
    lock.lock();
}

void Store::open() {
    open_ = std::make_unique<Open>(open_folder(options_.folder), options_.folder, options_.size_bytes_max);
    if (!open_->database.quarantined().empty()) {
        log::warning("store",
                     "the database was damaged and lies in " + open_->database.quarantined() + "; a new one was begun");
    }
    recover();
    open_->tables.ledger.close_left_open();
    prune();
}

void Store::recover() {
    std::vector<std::uint64_t> turns;
    UniqueFd again(::openat(open_->folder.borrow(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR* const folder = again ? ::fdopendir(again.borrow()) : nullptr;
    if (folder == nullptr) {
        throw_errno("opendir", options_.folder);
    }
    static_cast<void>(again.release());  // closedir() closes it
    while (const dirent* const entry = ::readdir(folder)) {
        if (const std::uint64_t id = turn_of(entry->d_name)) {
            turns.push_back(id);
        }
    }
    ::closedir(folder);
    for (const std::uint64_t turn : turns) {
        try {
            fold_file(turn);
        } catch (const std::exception& error) {
            log::error("store", "turn " + std::to_string(turn) + " stays in its journal: " + error.what());
        }
    }
}

void Store::fold_file(std::uint64_t turn) {
    const std::string name = journal_name(turn);
    const auto bytes = read_file(open_->folder.borrow(), name);
    if (!bytes) {
        return;
    }
    const JournalContents contents = scan(*bytes);
    if (!contents.fault.empty()) {
        log::warning("store", name + ": " + contents.fault + " after " + std::to_string(contents.record_count) +
                                  " records; the turn has " + std::to_string(contents.turn.tokens.size()) +
                                  " tokens of it");
    }
    if (!contents.has_begin || contents.turn.start.id != turn) {
        // Written before anybody was told of the turn, or rotten from the start.
        ::renameat(open_->folder.borrow(), name.c_str(), open_->folder.borrow(), kDamagedJournal);
        return;
    }
    fold(contents);
    if (::unlinkat(open_->folder.borrow(), name.c_str(), 0) != 0) {
        throw_errno("unlink", name);
    }
}

void Store::fold(const JournalContents& contents) {
    try {
        open_->tables.turns.fold(contents, wall_ms());
    } catch (const Error&) {
        // Perhaps the file is as long as it may be: the oldest turns make room.
        if (open_->tables.turns.prune(INT64_MIN) == 0) {
            throw;
        }
        open_->tables.turns.fold(contents, wall_ms());
    }
}

void Store::prune() {
    const std::int64_t before_ms = options_.retention_ms == 0 ? INT64_MIN : wall_ms() - options_.retention_ms;
    open_->tables.turns.prune(before_ms);
    open_->tables.ledger.prune(before_ms);
}

void Store::require_open() {
    const std::string reason = unavailable_reason();
    if (!reason.empty()) {
        throw Error(ErrorCode::Internal, "answers cannot be kept, so none is begun: " + reason);
    }
}

std::string Store::unavailable_reason() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_settled_; });
    return unavailable_;
}

std::shared_ptr<Journal> Store::begin(TurnStart start, std::uint64_t first_token) {
    require_open();
    std::shared_ptr<Journal> journal;
    try {
        journal = std::make_shared<Journal>(open_->folder.borrow(), std::move(start), first_token, options_.calls);
    } catch (const std::exception& error) {
        throw Error(ErrorCode::Internal, std::string("the answer cannot be kept, so it is not begun: ") + error.what() +
                                             "; make room in " + options_.folder + " or mend the disk");
    }
    {
        const std::lock_guard lock(mutex_);
        dirty_.push_back({journal, monotonic_ns(), true});
        running_.insert(journal->start().id);
    }
    changed_.notify_all();
    return journal;
}

void Store::written(const std::shared_ptr<Journal>& journal) {
    {
        const std::lock_guard lock(mutex_);
        const auto known =
            std::find_if(dirty_.begin(), dirty_.end(), [&](const Dirty& item) { return item.journal == journal; });
        if (known == dirty_.end()) {
            dirty_.push_back({journal, monotonic_ns(), false});
        } else if (journal->written_tokens() - journal->synced_tokens() < kSyncAfterTokens) {
            return;
        }
    }
    changed_.notify_all();
}

void Store::close(std::shared_ptr<Journal> journal) {
    enqueue([this, journal = std::move(journal)] {
        {
            const std::lock_guard lock(mutex_);
            std::erase_if(dirty_, [&](const Dirty& item) { return item.journal == journal; });
            running_.erase(journal->start().id);
        }
        try {
            fold_file(journal->start().id);
            prune();
        } catch (const std::exception& error) {
            log::error("store",
                       "turn " + std::to_string(journal->start().id) + " stays in its journal: " + error.what());
            try {
                journal->sync();
            } catch (const std::exception&) {
                // It has been told; what the kernel holds may still reach the disk.
            }
        }
    });
}

std::optional<StoredTurn> Store::find(std::uint64_t id) {
    std::optional<StoredTurn> found;
    run([this, id, &found](StoreTables& tables) {
        try {
            const bool is_running = [this, id] {
                const std::lock_guard lock(mutex_);
                return running_.contains(id);
            }();
            if (!is_running) {
                fold_file(id);  // left by a fold that failed
            }
        } catch (const std::exception& error) {
            log::warning("store", std::string("still not folded: ") + error.what());
        }
        found = tables.turns.find(id);
        const auto bytes = read_file(open_->folder.borrow(), journal_name(id));
        if (!bytes) {
            return;
        }
        JournalContents contents = scan(*bytes);
        if (!contents.has_begin || contents.turn.start.id != id) {
            return;
        }
        std::vector<std::uint32_t> tokens = found ? found->tokens : std::vector<std::uint32_t>();
        if (tokens.size() < contents.first_token) {
            contents.turn.finish.clear();  // the part before is lost: resuming makes it anew, the same
            contents.turn.tokens = std::move(tokens);
            found = std::move(contents.turn);
            return;
        }
        tokens.resize(contents.first_token);
        tokens.insert(tokens.end(), contents.turn.tokens.begin(), contents.turn.tokens.end());
        contents.turn.tokens = std::move(tokens);
        found = std::move(contents.turn);
    });
    return found;
}

void Store::enqueue(std::function<void()> operation) {
    {
        const std::lock_guard lock(mutex_);
        operations_.push_back(std::move(operation));
    }
    changed_.notify_all();
}

void Store::post(Work work) {
    enqueue([this, work = std::move(work)] {
        try {
            if (unavailable_.empty()) {
                work(open_->tables);
            }
        } catch (const std::exception& error) {
            log::error("store", error.what());
        }
    });
}

void Store::ask(Work work, std::function<void(std::exception_ptr)> done) {
    enqueue([this, work = std::move(work), done = std::move(done)] {
        std::exception_ptr failure;
        try {
            require_open();
            work(open_->tables);
        } catch (...) {
            failure = std::current_exception();
        }
        {
            const std::lock_guard lock(mutex_);
            replies_.push_back([done, failure = std::move(failure)] { done(failure); });
        }
        signal_event(replies_ready_.borrow());
    });
}

void Store::run(Work work) {
    require_open();
    // The failure is the caller's alone once it is seen: this thread lets go of it before it tells.
    const auto promise = std::make_shared<std::promise<std::exception_ptr>>();
    std::future<std::exception_ptr> done = promise->get_future();
    enqueue([this, &work, promise] {
        std::exception_ptr failure;
        try {
            work(open_->tables);
        } catch (...) {
            failure = std::current_exception();
        }
        promise->set_value(std::move(failure));
    });
    if (const std::exception_ptr failure = done.get()) {
        std::rethrow_exception(failure);
    }
}

void Store::run_replies() {
    clear_event(replies_ready_.borrow());
    std::vector<std::function<void()>> replies;
    {
        const std::lock_guard lock(mutex_);
        replies.swap(replies_);
    }
    for (const auto& reply : replies) {
        reply();
    }
}

}  // namespace perceptd::store

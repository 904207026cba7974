#include "store/database.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace perceptd::store {
namespace {

constexpr int kPageBytes = 4096;
constexpr int kQuarantinesMax = 3;

constexpr const char* kTables =
    "CREATE TABLE turns(number INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER UNIQUE NOT NULL, uid INTEGER NOT NULL,"
    " thread INTEGER NOT NULL, prompt BLOB NOT NULL, start BLOB NOT NULL, rng_key INTEGER NOT NULL,"
    " sampler_digest INTEGER NOT NULL, ended_at_ms INTEGER NOT NULL, finish TEXT NOT NULL) STRICT;"
    "CREATE INDEX turns_by_thread ON turns(uid, thread, number);"
    "CREATE TABLE chunks(turn INTEGER NOT NULL REFERENCES turns(id) ON DELETE CASCADE, first INTEGER NOT NULL,"
    " ids BLOB NOT NULL, PRIMARY KEY(turn, first)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE sensor_uses(number INTEGER PRIMARY KEY AUTOINCREMENT, uid INTEGER NOT NULL, pid INTEGER NOT NULL,"
    " program TEXT NOT NULL, sensor TEXT NOT NULL, from_ms INTEGER NOT NULL, to_ms INTEGER,"
    " is_over INTEGER NOT NULL) STRICT;"
    "CREATE TABLE days(uid INTEGER NOT NULL, day INTEGER NOT NULL, sessions INTEGER NOT NULL, turns INTEGER NOT NULL,"
    " tokens INTEGER NOT NULL, PRIMARY KEY(uid, day)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE models(uid INTEGER NOT NULL, model TEXT NOT NULL, turns INTEGER NOT NULL, tokens INTEGER NOT NULL,"
    " PRIMARY KEY(uid, model)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE milestones(uid INTEGER NOT NULL, kind TEXT NOT NULL, value INTEGER NOT NULL,"
    " reached_at_ms INTEGER NOT NULL, told_at_ms INTEGER, PRIMARY KEY(uid, kind, value)) STRICT, WITHOUT ROWID;";

[[noreturn]] void refuse(sqlite3* connection, const char* operation) {
    const int code = connection != nullptr ? sqlite3_errcode(connection) : SQLITE_NOMEM;
    const std::string reason = connection != nullptr ? sqlite3_errmsg(connection) : "no memory";
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
        throw Error(ErrorCode::Busy, "another process uses the store's database; end it first");
    }
    throw Error(ErrorCode::Internal,
                std::string("the store cannot ") + operation + ": " + reason +
                    (code == SQLITE_FULL ? "; make room on the disk, or raise /store/max_mib" : ""));
}

}  // namespace

Statement::Statement(sqlite3* database, std::string_view sql) : database_(database) {
    if (sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr) != SQLITE_OK) {
        refuse(database, "prepare a statement");
    }
}

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)), next_(other.next_) {}

Statement::~Statement() {
    sqlite3_finalize(statement_);
}

Statement& Statement::bind(std::int64_t value) {
    if (sqlite3_bind_int64(statement_, next_++, value) != SQLITE_OK) {
        refuse(database_, "bind a number");
    }
    return *this;
}

Statement& Statement::bind(std::string_view text) {
    if (sqlite3_bind_text(statement_, next_++, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT) !=
        SQLITE_OK) {
        refuse(database_, "bind a text");
    }
    return *this;
}

Statement& Statement::bind_bytes(std::string_view bytes) {
    const char* const data = bytes.empty() ? "" : bytes.data();  // null would be NULL, not an empty blob
    if (sqlite3_bind_blob(statement_, next_++, data, static_cast<int>(bytes.size()), SQLITE_TRANSIENT) != SQLITE_OK) {
        refuse(database_, "bind bytes");
    }
    return *this;
}

Statement& Statement::bind_null() {
    if (sqlite3_bind_null(statement_, next_++) != SQLITE_OK) {
        refuse(database_, "bind nothing");
    }
    return *this;
}

bool Statement::step() {
    switch (sqlite3_step(statement_)) {
        case SQLITE_ROW: return true;
        case SQLITE_DONE: return false;
        default: refuse(database_, "read or write its database");
    }
}

void Statement::run() {
    while (step()) {
    }
}

std::int64_t Statement::number(int column) const noexcept {
    return sqlite3_column_int64(statement_, column);
}

bool Statement::is_null(int column) const noexcept {
    return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::string Statement::text(int column) const {
    const auto* const data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr ? std::string() : std::string(data, static_cast<std::size_t>(size));
}

void Database::Close::operator()(sqlite3* connection) const noexcept {
    sqlite3_close(connection);
}

Database::Database(std::string path, std::size_t size_bytes_max)
    : path_(std::move(path)), size_bytes_max_(size_bytes_max) {
    open();
    if (!is_sound()) {
        quarantine();
        open();
    }
    const auto version = [this] {
        Statement statement = prepare("PRAGMA user_version");
        statement.step();
        return static_cast<int>(statement.number(0));
    }();
    if (version > kVersion) {
        throw Error(ErrorCode::VersionMismatch, path_ + " is of version " + std::to_string(version) +
                                                    ", this perceptd knows " + std::to_string(kVersion) +
                                                    "; update perceptd, or move the file away to begin a new one");
    }
    run("PRAGMA journal_mode=WAL");
    run("PRAGMA synchronous=FULL");
    run("PRAGMA foreign_keys=ON");
    run("PRAGMA secure_delete=ON");  // what a person erases is overwritten
    run("PRAGMA journal_size_limit=1048576");
    run(("PRAGMA max_page_count=" + std::to_string(size_bytes_max_ / kPageBytes)).c_str());
    make_tables(version);
}

Database::~Database() = default;

void Database::open() {
    // Made by hand for its mode: SQLite would take the process's umask.
    const UniqueFd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat status {};
    if (!file || ::fstat(file.borrow(), &status) != 0) {
        throw_errno("open", path_);
    }
    if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 0077) != 0) {
        throw Error(ErrorCode::NotAuthorized,
                    path_ + " is not a file of this user's alone (mode 0600); other people could have written it");
    }
    sqlite3* connection = nullptr;
    const int result = sqlite3_open_v2(
        path_.c_str(), &connection,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE, nullptr);
    connection_.reset(connection);
    if (result != SQLITE_OK) {
        refuse(connection, "open its database");
    }
    sqlite3_extended_result_codes(connection, 0);
    sqlite3_db_config(connection, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(connection, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    // Before anything is read: with the file to itself, the log's index is in its own memory and not in a mapped file.
    run("PRAGMA locking_mode=EXCLUSIVE");
    run("PRAGMA mmap_size=0");
}

bool Database::is_sound() {
    sqlite3_stmt* raw = nullptr;
    int result = sqlite3_prepare_v2(connection_.get(), "PRAGMA integrity_check(1)", -1, &raw, nullptr);
    std::string answer;
    if (result == SQLITE_OK && (result = sqlite3_step(raw)) == SQLITE_ROW) {
        answer = reinterpret_cast<const char*>(sqlite3_column_text(raw, 0));
    }
    sqlite3_finalize(raw);
    if (result != SQLITE_ROW && result != SQLITE_CORRUPT && result != SQLITE_NOTADB) {
        refuse(connection_.get(), "check its database");  // busy, no memory, an I/O error: says nothing of the file
    }
    return answer == "ok";
}

void Database::quarantine() {
    connection_.reset();
    const auto name = [this](int number) { return path_ + ".damaged-" + std::to_string(number); };
    for (int number = kQuarantinesMax - 1; number > 0; --number) {
        ::rename(name(number).c_str(), name(number + 1).c_str());  // the oldest is overwritten: the folder is bounded
    }
    quarantined_ = name(1);
    if (::rename(path_.c_str(), quarantined_.c_str()) != 0) {
        throw_errno("rename", path_);
    }
    for (const char* const suffix : {"-wal", "-shm", "-journal"}) {
        ::unlink((path_ + suffix).c_str());  // of the damaged file: they would spoil the new one
    }
}

void Database::make_tables(int version) {
    if (version == 0) {
        Transaction transaction(*this);
        run(kTables);
        run(("PRAGMA user_version=" + std::to_string(kVersion)).c_str());
        transaction.commit();
    }
}

void Database::run(const char* sql) {
    if (sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
        refuse(connection_.get(), "write its database");
    }
}

std::int64_t Database::changed_count() const noexcept {
    return sqlite3_changes64(connection_.get());
}

std::size_t Database::used_bytes() {
    const auto pages = [this](const char* pragma) {
        Statement statement = prepare(pragma);
        statement.step();
        return static_cast<std::size_t>(statement.number(0));
    };
    return (pages("PRAGMA page_count") - pages("PRAGMA freelist_count")) * kPageBytes;
}

void Database::checkpoint() {
    run("PRAGMA wal_checkpoint(TRUNCATE)");
}

Transaction::~Transaction() {
    if (database_ != nullptr) {
        try {
            database_->run("ROLLBACK");
        } catch (const std::exception&) {
            // A failed statement may have rolled back already.
        }
    }
}

void Transaction::commit() {
    database_->run("COMMIT");
    database_ = nullptr;
}

}  // namespace perceptd::store

// The SQLite file of the store: one connection, write-ahead log, full synchronisation, no mapped file, mode 0600. Owns
// the connection. Never opens a file of a newer version, never goes on with a damaged one: that is set aside under
// another name and a new one begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace perceptd::store {

/// A statement with its values. Thread-bound. Throws Error(Internal) with SQLite's words; a full disk says so.
class Statement {
public:
    ~Statement();
    Statement(Statement&& other) noexcept;
    Statement& operator=(Statement&&) = delete;

    Statement& bind(std::int64_t value);
    Statement& bind(std::uint64_t value) { return bind(static_cast<std::int64_t>(value)); }
    Statement& bind(std::uint32_t value) { return bind(std::int64_t{value}); }
    Statement& bind(std::string_view text);
    Statement& bind_bytes(std::string_view bytes);
    Statement& bind_null();
    /// True while there is a row.
    bool step();
    /// Runs it to its end.
    void run();

    [[nodiscard]] std::int64_t number(int column) const noexcept;
    [[nodiscard]] bool is_null(int column) const noexcept;
    [[nodiscard]] std::string text(int column) const;  ///< also of a blob

private:
    friend class Database;
    Statement(sqlite3* database, std::string_view sql);
    sqlite3* database_;
    sqlite3_stmt* statement_ = nullptr;
    int next_ = 1;
};

/// Thread-bound.
class Database {
public:
    static constexpr int kVersion = 1;

    /// Opens or makes `path`, at most `size_bytes_max` long. Throws Error(VersionMismatch) for a newer file, which it
    /// leaves as it is; Error(Busy) when another process has it; Error(Internal) when it cannot be read or made.
    Database(std::string path, std::size_t size_bytes_max);
    ~Database();
    Database(const Database&) = delete;
    Database& operator=(const Database&) = delete;

    [[nodiscard]] Statement prepare(std::string_view sql) const { return Statement(connection_.get(), sql); }
    void run(const char* sql);
    /// Rows that the last statement changed.
    [[nodiscard]] std::int64_t changed_count() const noexcept;
    /// Bytes in use, without free pages.
    [[nodiscard]] std::size_t used_bytes();
    [[nodiscard]] std::size_t size_bytes_max() const noexcept { return size_bytes_max_; }
    /// Moves everything into the file itself, so that deleted rows are in no log either.
    void checkpoint();
    /// Where a damaged file was put at opening; empty: there was none.
    [[nodiscard]] const std::string& quarantined() const noexcept { return quarantined_; }

private:
    struct Close {
        void operator()(sqlite3* connection) const noexcept;
    };
    void open();
    void quarantine();
    [[nodiscard]] bool is_sound();
    void make_tables(int version);

    std::string path_;
    std::size_t size_bytes_max_;
    std::unique_ptr<sqlite3, Close> connection_;
    std::string quarantined_;
};

/// All or nothing: rolled back unless commit() was called.
class Transaction {
public:
    explicit Transaction(Database& database) : database_(&database) { database.run("BEGIN IMMEDIATE"); }
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit();

private:
    Database* database_;
};

}  // namespace perceptd::store

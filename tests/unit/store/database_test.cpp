#include "store/database.hpp"

#include <sqlite3.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "store/turn_table.hpp"
#include "store_folder.hpp"

namespace perceptd::store {
namespace {

using test::bytes_of;
using test::some_start;
using test::StoreFolder;

constexpr std::size_t kRoomy = 8U << 20;

JournalContents turn(std::uint64_t id, std::vector<std::uint32_t> tokens, std::uint64_t first = 0,
                     std::uint32_t uid = 1000, const std::string& finish = "tokens_max", std::uint64_t thread = 0) {
    JournalContents contents;
    contents.has_begin = true;
    contents.turn.start = some_start(id, uid, thread);
    contents.turn.tokens = std::move(tokens);
    contents.turn.finish = finish;
    contents.first_token = first;
    return contents;
}

ErrorCode code_of(const std::string& path) {
    try {
        const Database database(path, kRoomy);
    } catch (const Error& error) {
        CHECK(std::string(error.what()).size() > 20);
        return error.code();
    }
    return ErrorCode{0};
}

/// Runs SQL on the file as another program would.
void alter(const std::string& path, const char* sql) {
    sqlite3* connection = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &connection) == SQLITE_OK);
    REQUIRE(sqlite3_exec(connection, sql, nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(connection);
}

std::string pragma(Database& database, const std::string& name) {
    Statement statement = database.prepare("PRAGMA " + name);
    REQUIRE(statement.step());
    return statement.text(0);
}

}  // namespace

TEST_CASE("the file is its user's alone, logged ahead, fully synchronized, and nothing of it is mapped") {
    const StoreFolder folder;
    Database database(folder.database(), kRoomy);
    TurnTable(database).fold(turn(1, {1}), 1);
    CHECK(pragma(database, "journal_mode") == "wal");
    CHECK(pragma(database, "synchronous") == "2");
    CHECK(pragma(database, "mmap_size") == "0");
    CHECK(pragma(database, "secure_delete") == "1");
    CHECK(bytes_of("/proc/self/maps").find(folder.path()) == std::string::npos);
    for (const char* const name : {"perceptd.db", "perceptd.db-wal"}) {
        struct stat status {};
        REQUIRE(::stat(folder.file(name).c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0600);
    }
    CHECK(::access(folder.file("perceptd.db-shm").c_str(), F_OK) != 0);
}

TEST_CASE("turns come back exactly, in one piece or continued, and only once") {
    const StoreFolder folder;
    std::vector<std::uint32_t> tokens(1000);
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = i * 7919;
    }
    {
        Database database(folder.database(), kRoomy);
        TurnTable turns(database);
        turns.fold(turn(5, {tokens.begin(), tokens.begin() + 600}, 0, 1000, ""), 10);
        turns.fold(turn(5, {tokens.begin(), tokens.begin() + 600}, 0, 1000, ""), 10);
        REQUIRE(turns.find(5)->is_interrupted());
        CHECK(turns.find(5)->tokens.size() == 600);
        turns.fold(turn(5, {tokens.begin() + 555, tokens.end()}, 555), 11);
    }
    {
        Database database(folder.database(), kRoomy);
        const auto found = TurnTable(database).find(5);
        REQUIRE(found);
        CHECK(test::is_equal(found->start, some_start(5)));
        CHECK(found->tokens == tokens);
        CHECK(found->finish == "tokens_max");
        CHECK(!TurnTable(database).find(6));
    }
    Database database(folder.database(), kRoomy);
    CHECK(TurnTable(database).list(1000, 10).size() == 1);
    // A continuation whose beginning was lost is an unfinished turn, never one with a hole.
    TurnTable(database).fold(turn(9, {1, 2, 3}, 40), 12);
    CHECK(TurnTable(database).find(9)->is_interrupted());
    CHECK(TurnTable(database).find(9)->tokens.empty());
}

TEST_CASE("one user's turns are nobody else's, and a thread's newest finished turn is by number, not by clock") {
    const StoreFolder folder;
    Database database(folder.database(), kRoomy);
    TurnTable turns(database);
    turns.fold(turn(1, {1}, 0, 1000, "stop_token", 4), 5000);
    turns.fold(turn(2, {2}, 0, 1000, "stop_token", 4), 3000);  // the clock was set back
    turns.fold(turn(3, {3}, 0, 1000, "", 4), 6000);            // interrupted
    turns.fold(turn(4, {4}, 0, 1001, "stop_token", 4), 7000);
    CHECK(turns.newest(1000, 4)->start.id == 2);
    CHECK(turns.newest(1001, 4)->start.id == 4);
    CHECK(!turns.newest(1002, 4));
    CHECK(turns.list(1000, 2).size() == 2);
    CHECK(turns.list(1000, 9).front().id == 3);
    CHECK(!turns.remove(1001, 1));
    CHECK(turns.remove(1000, 1));
    CHECK(!turns.find(1));
    CHECK(turns.remove_all(1000) == 2);
    CHECK(turns.list(1001, 9).size() == 1);
    Statement chunks = database.prepare("SELECT count(*) FROM chunks");
    REQUIRE(chunks.step());
    CHECK(chunks.number(0) == 1);  // no token outlives its turn
}

TEST_CASE("what was deleted is in no file any more") {
    const StoreFolder folder;
    Database database(folder.database(), kRoomy);
    TurnTable turns(database);
    JournalContents secret = turn(1, {1, 2, 3});
    secret.turn.start.request = "the wearer's secret words";
    turns.fold(secret, 1);
    database.checkpoint();
    REQUIRE(bytes_of(folder.database()).find("secret words") != std::string::npos);
    turns.remove_all(1000);
    database.checkpoint();
    CHECK(bytes_of(folder.database()).find("secret words") == std::string::npos);
    CHECK(bytes_of(folder.file("perceptd.db-wal")).find("secret words") == std::string::npos);
}

TEST_CASE("the file is bounded: old turns make room, newer ones stay") {
    const StoreFolder folder;
    constexpr std::size_t kBytes = 512U << 10;
    Database database(folder.database(), kBytes);
    TurnTable turns(database);
    std::uint64_t id = 1;
    std::size_t pruned = 0;
    for (; id <= 100; ++id) {
        turns.fold(turn(id, std::vector<std::uint32_t>(4096, 3000000000)), static_cast<std::int64_t>(id));
        pruned += turns.prune(INT64_MIN);
        CHECK(database.used_bytes() <= kBytes);
    }
    CHECK(pruned > 50);
    CHECK(turns.find(id - 1));
    CHECK(!turns.find(1));
    CHECK(turns.prune(100) > 0);  // those that ended before
    CHECK(turns.list(1000, 200).size() == 1);
}

TEST_CASE("a file of a newer version is refused with the reason and stays as it is") {
    const StoreFolder folder;
    { const Database database(folder.database(), kRoomy); }
    alter(folder.database(), "PRAGMA user_version=2");
    const std::string before = bytes_of(folder.database());
    CHECK(code_of(folder.database()) == ErrorCode::VersionMismatch);
    CHECK_THROWS_WITH(Database(folder.database(), kRoomy),
                      Catch::Contains("version 2") && Catch::Contains("update perceptd"));
    CHECK(bytes_of(folder.database()) == before);
}

TEST_CASE("a damaged file is put aside, and a new one begun") {
    const StoreFolder folder;
    const auto fill = [&] {
        Database database(folder.database(), kRoomy);
        for (std::uint64_t id = 1; id < 40; ++id) {
            TurnTable(database).fold(turn(id, std::vector<std::uint32_t>(500, 70000)), 1);
        }
        database.checkpoint();
    };
    const auto spoil = [&](std::size_t at, std::size_t count) {
        std::string bytes = bytes_of(folder.database());
        bytes.replace(at, count, std::string(count, '\x55'));
        test::write_bytes(folder.database(), bytes);
    };
    const std::vector<std::pair<std::size_t, std::size_t>> spoilt{{0, 16}, {8192, 4096}, {16384, 3}, {0, 4096}};
    for (const auto& [at, count] : spoilt) {
        fill();
        spoil(at, count);
        Database database(folder.database(), kRoomy);
        CHECK(database.quarantined() == folder.database() + ".damaged-1");
        CHECK(TurnTable(database).list(1000, 9).empty());
        TurnTable(database).fold(turn(1, {1}), 1);
    }
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        ++files;
    }
    CHECK(files == 4);  // the new one and three damaged ones: not one for every start
    test::write_bytes(folder.database(), "");
    const Database empty(folder.database(), kRoomy);
    CHECK(empty.quarantined().empty());
}

TEST_CASE("a file that others may write, a link, a folder or no folder is refused") {
    const StoreFolder folder;
    { const Database database(folder.database(), kRoomy); }
    ::chmod(folder.database().c_str(), 0666);
    CHECK(code_of(folder.database()) == ErrorCode::NotAuthorized);
    ::chmod(folder.database().c_str(), 0600);
    CHECK(code_of(folder.database()) == ErrorCode{0});
    std::filesystem::create_symlink(folder.database(), folder.file("link.db"));
    CHECK_THROWS_AS(Database(folder.file("link.db"), kRoomy), std::system_error);
    CHECK_THROWS_AS(Database(folder.path(), kRoomy), std::system_error);
    CHECK_THROWS_AS(Database(folder.file("no/where.db"), kRoomy), std::system_error);
}

TEST_CASE("a second process is told that the file is in use") {
    const StoreFolder folder;
    const Database database(folder.database(), kRoomy);
    CHECK(code_of(folder.database()) == ErrorCode::Busy);
}

}  // namespace perceptd::store

#include "store/store.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "store_folder.hpp"

namespace perceptd::store {
namespace {

using test::some_start;
using test::StoreFolder;

using Ids = std::vector<std::uint32_t>;

StoreOptions options_of(const StoreFolder& folder, FileCalls calls = {}) {
    return {.folder = folder.path() + "/store", .calls = calls};
}

/// Waits up to some seconds: for what another thread does soon.
template <typename Condition>
bool comes_true(Condition&& condition) {
    for (int i = 0; i < 2000; ++i) {
        if (condition()) {
            return true;
        }
        ::usleep(5000);
    }
    return false;
}

void wait_for(Store& store) {
    store.run([](StoreTables&) {});
}

std::atomic<int> sync_count{0};
int counting_sync(int fd) {
    ++sync_count;
    return ::fdatasync(fd);
}

std::atomic<bool> disk_is_full{false};
ssize_t write_or_full(int fd, const void* data, std::size_t size) {
    if (disk_is_full) {
        errno = ENOSPC;
        return -1;
    }
    return ::write(fd, data, size);
}

int failing_sync(int) {
    errno = EIO;
    return -1;
}

}  // namespace

TEST_CASE("a turn goes from its journal into the database, which outlives the store") {
    const StoreFolder folder;
    {
        Store store(options_of(folder));
        const auto journal = store.begin(some_start(7), 0);
        journal->append(Ids{1, 2, 3});
        store.written(journal);
        CHECK(store.find(7)->tokens == Ids{1, 2, 3});  // while it runs
        CHECK(store.find(7)->is_interrupted());
        journal->append(Ids{4});
        journal->finish("stop_token");
        store.close(journal);
        const auto found = store.find(7);
        REQUIRE(found);
        CHECK(found->tokens == Ids{1, 2, 3, 4});
        CHECK(found->finish == "stop_token");
        CHECK(::access((folder.path() + "/store/7.journal").c_str(), F_OK) != 0);
        CHECK(!store.find(8));
    }
    Store again(options_of(folder));
    CHECK(again.find(7)->tokens == Ids{1, 2, 3, 4});
    struct stat status {};
    REQUIRE(::stat((folder.path() + "/store").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
}

TEST_CASE("a turn that nobody ended comes back as interrupted, goes on, and is whole") {
    const StoreFolder folder;
    {
        Store store(options_of(folder));
        const auto journal = store.begin(some_start(7), 0);
        journal->append(Ids{1, 2, 3});
    }
    for (std::uint32_t token = 4; token < 8; ++token) {  // cut short again and again
        Store store(options_of(folder));
        const auto found = store.find(7);
        REQUIRE(found);
        CHECK(found->is_interrupted());
        CHECK(found->tokens.size() == token - 1);
        const auto journal = store.begin(found->start, found->tokens.size());
        journal->append(Ids{token});
        if (token == 7) {
            journal->finish("tokens_max");
            store.close(journal);
        }
    }
    Store store(options_of(folder));
    CHECK(store.find(7)->tokens == Ids{1, 2, 3, 4, 5, 6, 7});
    CHECK(store.find(7)->finish == "tokens_max");
    CHECK(test::is_equal(store.find(7)->start, some_start(7)));
}

TEST_CASE("a journal with a rotten tail gives what was whole, and is gone after") {
    const StoreFolder folder;
    { Store store(options_of(folder)); }
    {
        const UniqueFd fd(::open((folder.path() + "/store").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        Journal journal(fd.borrow(), some_start(7), 0);
        journal.append(Ids{1, 2, 3});
        journal.append(Ids{4, 5});
        Journal other(fd.borrow(), some_start(8), 0);
    }
    const std::string path = folder.path() + "/store/7.journal";
    std::string bytes = test::bytes_of(path);
    bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 0x40);
    test::write_bytes(path, bytes);
    test::write_bytes(folder.path() + "/store/9.journal", "no journal at all");
    test::write_bytes(folder.path() + "/store/notes.journal", "not ours");
    {
        Store store(options_of(folder));
        CHECK(store.find(7)->tokens == Ids{1, 2, 3});
        CHECK(store.find(8)->tokens.empty());
        CHECK(!store.find(9));
        CHECK(::access(path.c_str(), F_OK) != 0);
        CHECK(::access((folder.path() + "/store/damaged").c_str(), F_OK) == 0);
        CHECK(::access((folder.path() + "/store/notes.journal").c_str(), F_OK) == 0);
    }
    Store again(options_of(folder));
    CHECK(again.find(7)->tokens == Ids{1, 2, 3});
}

TEST_CASE("tokens are safe from a power cut after 8 of them or a quarter of a second, whichever comes first") {
    const StoreFolder folder;
    Store store(options_of(folder, {.fdatasync = counting_sync}));
    sync_count = 0;
    const auto journal = store.begin(some_start(7), 0);
    for (std::uint32_t token = 0; token < 8; ++token) {
        journal->append(Ids{token});
        store.written(journal);
    }
    CHECK(comes_true([&] { return journal->synced_tokens() == 8; }));
    journal->append(Ids{8});
    store.written(journal);
    CHECK(comes_true([&] { return journal->synced_tokens() == 9; }));  // by time: no eighth ever comes
    CHECK(sync_count >= 2);
    CHECK(sync_count <= 11);
    const int count = sync_count;
    wait_for(store);
    CHECK(sync_count == count);  // nothing is synchronized that was not written
}

TEST_CASE("a disk that fills up: what was taken stays, the turn can go on once there is room") {
    const StoreFolder folder;
    disk_is_full = false;
    Store store(options_of(folder, {.write = write_or_full}));
    const auto journal = store.begin(some_start(7), 0);
    journal->append(Ids{1, 2});
    disk_is_full = true;
    CHECK_THROWS_AS(journal->append(Ids{3}), std::system_error);
    CHECK_THROWS_AS(journal->finish("failed"), std::system_error);
    CHECK_THROWS_WITH(store.begin(some_start(8), 0), Catch::Contains("make room"));
    disk_is_full = false;
    CHECK_THROWS_AS(journal->append(Ids{3}), std::system_error);  // a torn record may lie there
    store.close(journal);
    const auto found = store.find(7);
    REQUIRE(found);
    CHECK(found->is_interrupted());
    CHECK(found->tokens == Ids{1, 2});
    const auto more = store.begin(found->start, 2);
    more->append(Ids{3});
    more->finish("tokens_max");
    store.close(more);
    CHECK(store.find(7)->tokens == Ids{1, 2, 3});
}

TEST_CASE("an I/O error while synchronizing is found out, told by the journal, and never called a success") {
    const StoreFolder folder;
    Store store(options_of(folder, {.fdatasync = failing_sync}));
    const auto journal = store.begin(some_start(7), 0);
    CHECK(comes_true([&] { return journal->failure() == EIO; }));
    CHECK_THROWS_AS(journal->append(Ids{1}), std::system_error);
    CHECK(journal->synced_tokens() == 0);
    store.close(journal);
    CHECK(store.find(7)->is_interrupted());
}

TEST_CASE("a store that cannot be opened says why, to everybody, and lets the rest live") {
    const StoreFolder folder;
    const auto reason_of = [&](StoreOptions options) {
        Store store(std::move(options));
        const std::string reason = store.unavailable_reason();
        REQUIRE_THROWS_WITH(store.begin(some_start(1), 0), Catch::Contains(reason));
        REQUIRE_THROWS_WITH(store.find(1), Catch::Contains(reason));
        bool has_run = false;
        store.post([&](StoreTables&) { has_run = true; });
        std::exception_ptr failure;
        bool is_answered = false;
        store.ask([&](StoreTables&) { has_run = true; },
                  [&](std::exception_ptr error) {
                      is_answered = true;
                      failure = error;
                  });
        pollfd ready{store.reply_fd(), POLLIN, 0};
        REQUIRE(::poll(&ready, 1, 5000) == 1);
        store.run_replies();
        CHECK(is_answered);
        CHECK(failure != nullptr);
        CHECK(!has_run);
        return reason;
    };
    test::write_bytes(folder.file("a file"), "x");
    CHECK_THAT(reason_of({.folder = folder.file("a file")}), Catch::Contains("a file"));
    { Store store(options_of(folder)); }
    ::chmod((folder.path() + "/store").c_str(), 0777);
    CHECK_THAT(reason_of(options_of(folder)), Catch::Contains("nobody else may write it"));
    ::chmod((folder.path() + "/store").c_str(), 0700);
    {
        Store first(options_of(folder));
        REQUIRE(first.unavailable_reason().empty());  // it has the folder
        CHECK_THAT(reason_of(options_of(folder)), Catch::Contains("another perceptd"));
    }
    {
        Store store(options_of(folder));
        store.run([](StoreTables& tables) { tables.database.run("PRAGMA user_version=9"); });
    }
    CHECK_THAT(reason_of(options_of(folder)), Catch::Contains("version 9"));
}

TEST_CASE("a read-only file system is a reason, not a crash") {
    const StoreFolder folder;
    if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
        WARN("no right to mount a file system: not checked here");
        return;
    }
    { Store store(options_of(folder)); }
    REQUIRE(::mount("none", folder.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0);
    {
        Store store(options_of(folder));
        CHECK_THAT(store.unavailable_reason(), Catch::Contains("ead-only"));
    }
    // The same file system, writable and full to the last byte.
    REQUIRE(::mount("none", folder.path().c_str(), "tmpfs", MS_REMOUNT, nullptr) == 0);
    {
        Store store(options_of(folder));
        const auto journal = store.begin(some_start(7), 0);
        journal->append(Ids{1, 2});
        test::write_bytes(folder.file("filler"), std::string(2U << 20, 'x'));
        std::uint32_t taken = 2;
        while (journal->failure() == 0 && taken < 100000) {
            try {
                journal->append(Ids(64, taken));
                taken += 64;
            } catch (const std::system_error& error) {
                CHECK(error.code().value() == ENOSPC);
            }
        }
        CHECK(taken < 100000);
        store.close(journal);
        CHECK(store.find(7)->tokens.size() == taken);  // from the journal: the database has no room for it
        std::filesystem::remove(folder.file("filler"));
    }
    {
        Store store(options_of(folder));
        CHECK(store.find(7)->tokens.size() >= 2);
        CHECK(::access((folder.path() + "/store/7.journal").c_str(), F_OK) != 0);
    }
    REQUIRE(::umount(folder.path().c_str()) == 0);
}

TEST_CASE("turns are forgotten after the configured time, not because the clock was set back") {
    const StoreFolder folder;
    StoreOptions options = options_of(folder);
    options.retention_ms = 1000;
    const auto finish = [](Store& store, std::uint64_t id) {
        const auto journal = store.begin(some_start(id), 0);
        journal->finish("stop_token");
        store.close(journal);
        wait_for(store);
    };
    Store store(options);
    finish(store, 1);
    store.run([](StoreTables& tables) { tables.database.run("UPDATE turns SET ended_at_ms = ended_at_ms - 5000"); });
    finish(store, 2);
    CHECK(!store.find(1));
    CHECK(store.find(2));
    store.run([](StoreTables& tables) { tables.database.run("UPDATE turns SET ended_at_ms = ended_at_ms + 900000"); });
    finish(store, 3);
    CHECK(store.find(2));  // from the future: the clock was set back since
    CHECK(store.find(3));
}

TEST_CASE("work on the store thread is answered on the main thread, in order, with what it threw") {
    const StoreFolder folder;
    Store store(options_of(folder));
    std::vector<int> order;
    for (int i = 0; i < 3; ++i) {
        store.ask(
            [i](StoreTables&) {
                if (i == 1) {
                    throw Error(ErrorCode::NotFound, "no such thing");
                }
            },
            [i, &order](std::exception_ptr error) {
                order.push_back(i);
                CHECK((error != nullptr) == (i == 1));
            });
    }
    wait_for(store);
    CHECK(order.empty());
    store.run_replies();
    CHECK(order == std::vector<int>{0, 1, 2});
    CHECK_THROWS_WITH(store.run([](StoreTables&) { throw Error(ErrorCode::NotFound, "gone"); }), "gone");
}

}  // namespace perceptd::store

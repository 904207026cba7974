#include "store/journal.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <system_error>

#include "sensor/counter_rng.hpp"
#include "store/crc32c.hpp"
#include "store_folder.hpp"

namespace perceptd::store {
namespace {

using test::bytes_of;
using test::some_start;
using test::StoreFolder;

using Ids = std::vector<std::uint32_t>;

UniqueFd opened(const StoreFolder& folder) {
    return UniqueFd(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

JournalContents scan_text(const std::string& bytes) {
    return scan(std::as_bytes(std::span(bytes)));
}

/// The journal of turn 7: three records of tokens, finished.
std::string whole_journal(const StoreFolder& folder) {
    const UniqueFd fd = opened(folder);
    Journal journal(fd.borrow(), some_start(7), 0);
    journal.append(Ids{5, 4000000000});
    journal.append(Ids{6});
    journal.append(Ids{7, 8, 9});
    journal.finish("stop_token");
    return bytes_of(folder.file(journal_name(7)));
}

bool is_prefix(const Ids& part, const Ids& whole) {
    return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

int fail_with_io_error(int) {
    errno = EIO;
    return -1;
}

int sync_calls = 0;
int fail_once(int) {
    errno = EIO;
    return ++sync_calls == 1 ? -1 : 0;
}

ssize_t write_a_byte(int fd, const void* data, std::size_t size) {
    static int call = 0;
    if (++call % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return ::write(fd, data, std::min<std::size_t>(size, 1));
}

}  // namespace

TEST_CASE("the checksum is CRC-32C of RFC 3720") {
    std::array<std::byte, 32> bytes{};
    CHECK(crc32c(bytes) == 0x8a9136aa);
    bytes.fill(std::byte{0xff});
    CHECK(crc32c(bytes) == 0x62a8ab43);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i);
    }
    CHECK(crc32c(bytes) == 0x46dd794e);
    CHECK(crc32c(std::as_bytes(std::span("123456789", 9))) == 0xe3069283);
}

TEST_CASE("what was written is read back, also a turn that goes on later") {
    const StoreFolder folder;
    const JournalContents found = scan_text(whole_journal(folder));
    CHECK(found.fault.empty());
    REQUIRE(found.has_begin);
    CHECK(test::is_equal(found.turn.start, some_start(7)));
    CHECK(found.turn.tokens == Ids{5, 4000000000, 6, 7, 8, 9});
    CHECK(found.turn.finish == "stop_token");
    CHECK(found.record_count == 5);

    const UniqueFd fd = opened(folder);
    Journal later(fd.borrow(), some_start(8), 40);
    later.append(Ids{1});
    CHECK(later.written_tokens() == 41);
    const JournalContents rest = scan_text(bytes_of(folder.file("8.journal")));
    CHECK(rest.first_token == 40);
    CHECK(rest.turn.tokens == Ids{1});
    CHECK(rest.turn.is_interrupted());
    struct stat status {};
    REQUIRE(::stat(folder.file("8.journal").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("a journal that another program wrote by the format's description is read") {
    // tests/fuzz/make_corpus.py, which has its own checksum and its own numbers.
    const JournalContents found = scan_text(bytes_of(PERCEPTD_CORPUS "fuzz_journal/whole"));
    CHECK(found.fault.empty());
    CHECK(found.turn.start.id == 7);
    CHECK(found.turn.start.uid == 1000);
    CHECK(found.turn.start.model == "small");
    CHECK(found.turn.start.prompt == Ids{1, 2, 300});
    CHECK(found.turn.start.rng_key == 11);
    CHECK(found.turn.start.sampler_digest == 12);
    CHECK(found.turn.start.started_at_ms == 1'700'000'000'000);
    CHECK(found.turn.tokens == Ids{5, 4000000000, 6});
    CHECK(found.turn.finish == "stop_token");
    CHECK(scan_text(bytes_of(PERCEPTD_CORPUS "fuzz_journal/continued")).first_token == 40);
}

TEST_CASE("a journal cut anywhere gives its whole records, and says that a piece is missing") {
    const StoreFolder folder;
    const std::string whole = whole_journal(folder);
    const JournalContents all = scan_text(whole);
    std::size_t clean = 0;
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const JournalContents part = scan_text(whole.substr(0, size));
        CHECK(part.valid_bytes <= size);
        CHECK(part.fault.empty() == (part.valid_bytes == size));
        CHECK(is_prefix(part.turn.tokens, all.turn.tokens));
        CHECK(part.turn.is_interrupted());
        clean += part.fault.empty() ? 1 : 0;
    }
    CHECK(clean == 5);  // nothing, and the end of each record but the last
}

TEST_CASE("no rotten byte is believed: every flipped bit ends the journal before it") {
    const StoreFolder folder;
    const std::string whole = whole_journal(folder);
    const JournalContents all = scan_text(whole);
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
        std::string rotten = whole;
        rotten[bit / 8] = static_cast<char>(rotten[bit / 8] ^ (1 << (bit % 8)));
        const JournalContents part = scan_text(rotten);
        CHECK(!part.fault.empty());
        CHECK(part.valid_bytes <= bit / 8);
        CHECK(is_prefix(part.turn.tokens, all.turn.tokens));
        CHECK(part.turn.is_interrupted());
    }
    // A tail of another file's bytes, as a power cut leaves them.
    for (std::uint64_t seed = 0; seed < 500; ++seed) {
        std::string tail = whole;
        for (std::uint64_t i = 0; i < 1 + seed % 60; ++i) {
            tail.push_back(static_cast<char>(sensor::random_bits(seed, 0, i)));
        }
        const JournalContents part = scan_text(tail);
        CHECK(part.turn.tokens == all.turn.tokens);
        CHECK(part.valid_bytes == whole.size());
        CHECK(!part.fault.empty());
    }
}

TEST_CASE("records of another turn, of another order or of another key are not taken") {
    const auto journal = [](auto&& change) {
        ByteWriter out;
        const TurnStart start = some_start(7);
        Record record{0, RecordKind::Begin, 7, 3, start.rng_key, start.sampler_digest};
        put_record(out, record, start.prompt, encoded(start));
        record = {1, RecordKind::Tokens, 7, 3, start.rng_key, start.sampler_digest};
        change(record);
        put_record(out, record, Ids{5}, {});
        return scan(out.bytes());
    };
    CHECK(journal([](Record&) {}).fault.empty());
    CHECK(!journal([](Record& record) { record.turn = 8; }).fault.empty());
    CHECK(!journal([](Record& record) { record.seq = 2; }).fault.empty());
    CHECK(!journal([](Record& record) { record.first_position = 4; }).fault.empty());
    CHECK(!journal([](Record& record) { record.rng_key ^= 1; }).fault.empty());
    CHECK(!journal([](Record& record) { record.sampler_digest ^= 1; }).fault.empty());
    CHECK(!journal([](Record& record) { record.kind = RecordKind::Begin; }).fault.empty());
    CHECK(!journal([](Record& record) { record.kind = RecordKind{9}; }).fault.empty());
}

TEST_CASE("a kernel that takes a byte at a time and is interrupted loses nothing") {
    const StoreFolder folder;
    const UniqueFd fd = opened(folder);
    Journal journal(fd.borrow(), some_start(7), 0, {.write = write_a_byte});
    journal.append(Ids{1, 2, 3});
    const JournalContents found = scan_text(bytes_of(folder.file("7.journal")));
    CHECK(found.fault.empty());
    CHECK(found.turn.tokens == Ids{1, 2, 3});
}

TEST_CASE("a failed sync is not tried again and called a success: nothing more is taken") {
    const StoreFolder folder;
    const UniqueFd fd = opened(folder);
    sync_calls = 0;
    Journal journal(fd.borrow(), some_start(7), 0, {.fdatasync = fail_once});
    journal.append(Ids{1});
    CHECK_THROWS_AS(journal.sync(), std::system_error);
    CHECK_THROWS_AS(journal.sync(), std::system_error);
    CHECK(sync_calls == 1);
    CHECK(journal.synced_tokens() == 0);
    CHECK(journal.failure() == EIO);
    CHECK_THROWS_WITH(journal.append(Ids{2}), Catch::Contains("journal of turn 7"));
    CHECK(scan_text(bytes_of(folder.file("7.journal"))).turn.tokens == Ids{1});

    Journal other(fd.borrow(), some_start(8), 0, {.fdatasync = fail_with_io_error});
    other.append(Ids{1});
    CHECK_THROWS_AS(other.sync(), std::system_error);
}

TEST_CASE("a full disk: the record that did not fit was not taken, the ones before it stay whole") {
    const StoreFolder folder;
    const pid_t child = ::fork();  // a limit that nobody else is to feel
    REQUIRE(child >= 0);
    if (child == 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{2000, 2000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        const UniqueFd fd = opened(folder);
        try {
            Journal journal(fd.borrow(), some_start(7), 0);
            for (std::uint32_t token = 0; token < 1000; ++token) {
                try {
                    journal.append(Ids{token});
                } catch (const std::system_error& error) {
                    const bool is_right = error.code().value() == EFBIG && journal.failure() == EFBIG &&
                                          journal.written_tokens() == token;
                    ::_exit(is_right ? static_cast<int>(token) : 255);
                }
            }
        } catch (const std::exception&) {
        }
        ::_exit(254);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    const auto taken = static_cast<std::size_t>(WEXITSTATUS(status));
    CHECK(taken > 20);
    CHECK(taken < 254);
    const JournalContents found = scan_text(bytes_of(folder.file("7.journal")));
    CHECK(found.turn.tokens.size() == taken);
    CHECK(found.fault == "a record is torn");
}

TEST_CASE("a turn that cannot be begun leaves no file, and one that exists is not written over") {
    const StoreFolder folder;
    const UniqueFd fd = opened(folder);
    const auto no_room = [](int, const void*, std::size_t) -> ssize_t {
        errno = ENOSPC;
        return -1;
    };
    CHECK_THROWS_AS(Journal(fd.borrow(), some_start(7), 0, {.write = no_room}), std::system_error);
    CHECK(::access(folder.file("7.journal").c_str(), F_OK) != 0);
    const Journal journal(fd.borrow(), some_start(7), 0);
    CHECK_THROWS_AS(Journal(fd.borrow(), some_start(7), 0), std::system_error);
    CHECK(scan_text(bytes_of(folder.file("7.journal"))).has_begin);
}

}  // namespace perceptd::store

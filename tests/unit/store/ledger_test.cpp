#include "store/ledger.hpp"

#include <catch2/catch.hpp>

#include "store_folder.hpp"

namespace perceptd::store {
namespace {

constexpr std::int64_t kHourMs = 3600 * 1000;
constexpr std::int64_t kDayMs = 24 * kHourMs;
constexpr std::int64_t kNowMs = 1'700'000'000'000;

struct Book {
    test::StoreFolder folder;
    Database database{folder.database(), 8U << 20};
    Ledger ledger{database};
};

SensorUse use(const char* sensor, std::int64_t from_ms, std::uint32_t uid = 1000) {
    return {.uid = uid, .pid = 42, .program = "glasses-app", .sensor = sensor, .from_ms = from_ms};
}

}  // namespace

TEST_CASE("sessions, answers, models and active days add up, each user's alone") {
    Book book;
    book.ledger.add_session(1000, kNowMs);
    book.ledger.add_session(1000, kNowMs + kDayMs);
    book.ledger.add_answer(1000, "big", 100, true, kNowMs + kDayMs);
    book.ledger.add_answer(1000, "big", 11, false, kNowMs + 2 * kDayMs);
    book.ledger.add_answer(1000, "small", 7, true, kNowMs + 2 * kDayMs);
    book.ledger.add_answer(1001, "big", 1000, true, kNowMs);
    const LedgerSummary own = book.ledger.read(1000);
    CHECK(own.sessions == 2);
    CHECK(own.turns == 2);
    CHECK(own.tokens == 118);
    CHECK(own.active_days == 3);
    REQUIRE(own.models.size() == 2);
    CHECK(own.models[0].model == "big");
    CHECK(own.models[0].tokens == 111);
    CHECK(own.models[0].turns == 1);
    const LedgerSummary all = book.ledger.read(std::nullopt);
    CHECK(all.tokens == 1118);
    CHECK(all.active_days == 3);
    CHECK(book.ledger.read(4).models.empty());
}

TEST_CASE("a sensor's use has an end, or says that nobody knows it") {
    Book book;
    const std::int64_t camera = book.ledger.begin_sensor_use(use("camera", kNowMs));
    const std::int64_t imu = book.ledger.begin_sensor_use(use("imu", kNowMs + 5));
    book.ledger.begin_sensor_use(use("microphone", kNowMs + 6, 1001));
    book.ledger.end_sensor_use(camera, kNowMs + 900);
    book.ledger.end_sensor_use(imu, kNowMs - kDayMs);  // the clock was set back meanwhile
    const LedgerSummary own = book.ledger.read(1000);
    REQUIRE(own.sensor_uses.size() == 2);
    CHECK(own.sensor_uses[0].sensor == "imu");
    CHECK(own.sensor_uses[0].to_ms == own.sensor_uses[0].from_ms);  // not before it began
    CHECK(own.sensor_uses[1].to_ms == kNowMs + 900);
    CHECK(own.sensor_uses[1].program == "glasses-app");
    CHECK(!book.ledger.read(1001).sensor_uses[0].is_over);
    book.ledger.close_left_open();
    const SensorUse lost = book.ledger.read(1001).sensor_uses[0];
    CHECK(lost.is_over);
    CHECK(!lost.to_ms);
}

TEST_CASE("erasing takes a user's rows and leaves who holds a sensor now") {
    Book book;
    for (const std::uint32_t uid : {1000U, 1001U}) {
        book.ledger.add_session(uid, kNowMs);
        book.ledger.add_answer(uid, "the model of user " + std::to_string(uid), 2000, true, kNowMs);
        book.ledger.end_sensor_use(book.ledger.begin_sensor_use(use("imu", kNowMs, uid)), kNowMs + 1);
        book.ledger.begin_sensor_use(use("camera", kNowMs, uid));
    }
    book.ledger.erase(1000);
    const LedgerSummary own = book.ledger.read(1000);
    CHECK(own.sessions == 0);
    CHECK(own.tokens == 0);
    CHECK(own.models.empty());
    CHECK(own.milestones.empty());
    REQUIRE(own.sensor_uses.size() == 1);
    CHECK(own.sensor_uses[0].sensor == "camera");
    CHECK(book.ledger.read(1001).tokens == 2000);
    CHECK(book.ledger.read(1001).sensor_uses.size() == 2);
    CHECK(test::bytes_of(book.folder.database()).find("the model of user 1000") == std::string::npos);
    book.ledger.erase(std::nullopt);
    CHECK(book.ledger.read(std::nullopt).tokens == 0);
    CHECK(book.ledger.read(std::nullopt).sensor_uses.size() == 2);
}

TEST_CASE("at most one milestone in 48 hours, the greatest of its kind, and none twice") {
    Book book;
    CHECK(!book.ledger.take_milestone(1000, kNowMs));
    book.ledger.add_answer(1000, "big", 12'000, true, kNowMs);  // 1,000 and 10,000 at once
    for (int i = 0; i < 10; ++i) {
        book.ledger.add_session(1000, kNowMs + 1 + i);
    }
    const auto first = book.ledger.take_milestone(1000, kNowMs + 100);
    REQUIRE(first);
    CHECK(first->kind == "tokens");
    CHECK(first->value == 10'000);
    CHECK(!book.ledger.take_milestone(1000, kNowMs + 100));
    CHECK(!book.ledger.take_milestone(1000, kNowMs + 100 + 48 * kHourMs - 1));
    const auto second = book.ledger.take_milestone(1000, kNowMs + 100 + 48 * kHourMs);
    REQUIRE(second);
    CHECK(second->kind == "sessions");
    CHECK(second->value == 10);
    CHECK(!book.ledger.take_milestone(1000, kNowMs + 30 * kDayMs));
    CHECK(!book.ledger.take_milestone(1001, kNowMs + 30 * kDayMs));
    CHECK(book.ledger.read(1000).milestones.size() == 3);
}

TEST_CASE("a clock that is set back neither repeats a milestone nor silences them for years") {
    Book book;
    book.ledger.add_answer(1000, "big", 1000, true, kNowMs + 3650 * kDayMs);  // the clock was ten years ahead
    REQUIRE(book.ledger.take_milestone(1000, kNowMs + 3650 * kDayMs));
    for (int i = 0; i < 10; ++i) {
        book.ledger.add_session(1000, kNowMs);
    }
    CHECK(!book.ledger.take_milestone(1000, kNowMs));
    CHECK(!book.ledger.take_milestone(1000, kNowMs + 47 * kHourMs));
    const auto next = book.ledger.take_milestone(1000, kNowMs + 48 * kHourMs);
    REQUIRE(next);
    CHECK(next->kind == "sessions");
    CHECK(book.ledger.read(1000).active_days == 2);
}

TEST_CASE("sensor uses are bounded in number and in age") {
    Book book;
    Transaction quick(book.database);
    const std::int64_t first = book.ledger.begin_sensor_use(use("camera", kNowMs));
    for (std::size_t i = 0; i < Ledger::kSensorUsesMax + 200; ++i) {
        book.ledger.end_sensor_use(book.ledger.begin_sensor_use(use("imu", kNowMs + static_cast<std::int64_t>(i))),
                                   kNowMs);
    }
    quick.commit();
    const auto count = [&] {
        Statement statement = book.database.prepare("SELECT count(*), min(number) FROM sensor_uses");
        statement.step();
        return std::pair(statement.number(0), statement.number(1));
    };
    CHECK(count().first <= static_cast<std::int64_t>(Ledger::kSensorUsesMax) + 65);
    CHECK(count().second == first);  // it is still held
    CHECK(book.ledger.read(1000).sensor_uses.size() == Ledger::kSensorUsesShownMax);
    book.ledger.prune(kNowMs + static_cast<std::int64_t>(Ledger::kSensorUsesMax) + 199);
    CHECK(count().first == 2);
}

}  // namespace perceptd::store

// Session: the state machine against clients that are honest, broken, slow or gone; no slot or descriptor leaks.
#include <sys/eventfd.h>

#include <catch2/catch.hpp>
#include <random>

#include "session_fixture.hpp"

using namespace perceptd;
using namespace perceptd::session;
using namespace perceptd::session::test;
using State = Session::State;

TEST_CASE("versions are negotiated") {
    Stage stage;
    SECTION("a range that overlaps") {
        stage.client->hello(1, 9);
        stage.session->handle_ready();
        const v1::ServerMessage answer = stage.client->read();
        REQUIRE(answer.has_welcome());
        CHECK(answer.welcome().version() == 1);
        CHECK(answer.welcome().session_id() == 7);
        CHECK(stage.session->state() == State::Subscribe);
    }
    SECTION("ranges that do not") {
        const auto [min, max] = GENERATE(std::pair(2u, 9u), std::pair(0u, 0u), std::pair(3u, 1u), std::pair(0u, 1u));
        stage.client->hello(min, max);
        stage.session->handle_ready();
        const v1::ServerMessage answer = stage.client->read();
        REQUIRE(answer.has_error());
        CHECK(answer.error().code() == v1::ERROR_CODE_VERSION_MISMATCH);
        CHECK(answer.error().fatal());
        CHECK(stage.client->at_end());
        CHECK(stage.session->state() == State::Closed);
    }
}

TEST_CASE("a window is held until its release") {
    Stage stage;
    stage.stream();
    CHECK(stage.session->state() == State::Streaming);
    CHECK(stage.authority.asked == std::vector<std::string>{"org.perceptd1.use-camera"});
    CHECK(stage.client->fd_count == 2);
    stage.session->deliver(stage.window(1));
    const v1::ServerMessage message = stage.client->read();
    REQUIRE(message.has_window());
    CHECK(message.window().frame().block().generation() % 2 == 0);
    CHECK_FALSE(message.window().has_mel());
    CHECK(stage.camera.free_count() == 7);
    stage.client->release(1);
    stage.client->release(1);  // harmless
    stage.session->handle_ready();
    CHECK(stage.camera.free_count() == 8);
    CHECK(stage.session->counters().released_count == 1);
    CHECK(stage.session->state() == State::Streaming);
    stage.client->release(2);  // never sent
    stage.session->handle_ready();
    CHECK(stage.session->end_cause() == EndCause::Protocol);
}

TEST_CASE("a client that never releases loses windows, and the oldest can be taken back") {
    Stage stage({}, {.windows_in_flight_max = 3});
    stage.stream();
    for (std::uint64_t id = 1; id <= 20; ++id) {
        stage.session->deliver(stage.window(id));
    }
    CHECK(stage.session->windows_in_flight() == 3);
    CHECK(stage.session->counters().lost_unreleased_count == 17);
    CHECK(stage.camera.free_count() == 5);
    REQUIRE(stage.session->revoke_oldest());
    CHECK(stage.camera.free_count() == 6);
    CHECK(stage.session->oldest_held_ns() == 300);
    stage.client->release(1);  // revoked: the client could not know
    stage.session->handle_ready();
    CHECK(stage.session->state() == State::Streaming);
    stage.session->close(EndCause::Requested, "test");
    CHECK(stage.camera.free_count() == 8);
    CHECK(stage.feed.attached_count == 0);
    CHECK(stage.quota.session_count() == 0);
}

TEST_CASE("a client that never reads never blocks the daemon") {
    Stage stage({.windows_per_session = 100'000, .windows_per_uid = 100'000}, {.windows_in_flight_max = 100'000});
    stage.stream();
    for (std::uint64_t id = 1; id <= 5'000; ++id) {
        stage.session->deliver(stage.window(id));
    }
    CHECK(stage.session->state() == State::Streaming);
    CHECK(stage.session->counters().lost_unread_count > 0);
    CHECK(stage.session->counters().sent_count + stage.session->counters().lost_unread_count == 5'000);
    for (int i = 0; i < 100 && stage.session->state() != State::Closed; ++i) {
        stage.session->notify(NoticeKind::SensorLost, "test");
    }
    CHECK(stage.session->end_cause() == EndCause::Unresponsive);
    CHECK(stage.camera.free_count() == 8);
}

TEST_CASE("garbage, oversized packets and descriptors end the session in every state") {
    UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    const int state = GENERATE(0, 1, 2);
    const int attack = GENERATE(0, 1, 2, 3, 4, 5);
    Stage stage;
    if (state == 1) {
        stage.client->hello();
        stage.session->handle_ready();
        stage.client->read();
    } else if (state == 2) {
        stage.stream();
        stage.session->deliver(stage.window(1));
        stage.client->read();
    }
    const std::size_t before = open_fd_count();
    switch (attack) {
        case 0: stage.client->send_bytes("\xff\xff\xff\xff garbage"); break;
        case 1: stage.client->send_bytes(std::string(kPacketBytesMax + 1, '\n')); break;
        case 2: stage.client->send_fds("x", std::vector<int>(250, event.borrow())); break;
        case 3: stage.client->send_fds("x", std::vector<int>(2, event.borrow())); break;
        case 4: {
            v1::ClientMessage message;
            for (std::uint64_t id = 0; id < 300; ++id) {
                message.mutable_release()->add_window_ids(id);
            }
            stage.client->send_bytes(message.SerializeAsString());
            break;
        }
        default: stage.client->send_bytes(v1::ClientMessage().SerializeAsString() + '\x32' + '\0'); break;
    }
    stage.session->handle_ready();
    CHECK(stage.session->state() == State::Closed);
    CHECK(stage.session->end_cause() == EndCause::Protocol);
    CHECK(stage.client->read().error().code() == v1::ERROR_CODE_PROTOCOL_VIOLATION);
    CHECK(open_fd_count() == before);
    CHECK(stage.camera.free_count() == 8);
    CHECK(stage.feed.attached_count == 0);
}

TEST_CASE("random bytes never do more than end the session") {
    std::mt19937 random(1);
    for (int round = 0; round < 2'000; ++round) {
        Wire wire;
        std::string bytes(random() % 64 + 1, '\0');
        for (char& byte : bytes) {
            byte = static_cast<char>(random());
        }
        const Request request = wire.decode(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())));
        CHECK(request.window_ids.size() <= kReleaseIdsMax);
    }
}

TEST_CASE("a client that closes at any state leaves nothing behind") {
    const std::size_t before = open_fd_count();
    const int state = GENERATE(0, 1, 2, 3, 4);
    {
        Stage stage;
        if (state == 1) {
            stage.client->hello();
        } else if (state == 2) {
            stage.authority.verdict.reset();
            stage.client->hello();
            stage.client->subscribe({v1::SENSOR_CAMERA});
        } else if (state >= 3) {
            stage.stream();
        }
        stage.session->handle_ready();
        if (state == 4) {
            stage.session->deliver(stage.window(1));
            stage.session->deliver(stage.window(2));
        }
        stage.client->close();
        if (state == 4) {
            stage.session->deliver(stage.window(3));
        }
        stage.session->handle_ready();
        CHECK(stage.session->state() == State::Closed);
        CHECK(stage.session->end_cause() == EndCause::Client);
        CHECK(stage.camera.free_count() == 8);
        CHECK(stage.feed.attached_count == 0);
        CHECK(stage.quota.session_count() == 0);
        if (stage.authority.kept) {
            stage.session.reset();
            stage.authority.kept(Verdict::Granted, "");  // too late
            CHECK(stage.feed.attached_count == 0);
        }
    }
    CHECK(open_fd_count() == before);
}

TEST_CASE("a denial leaves the session ready for another try; silence of polkit is a denial") {
    Stage stage;
    stage.authority.verdict = GENERATE(Verdict::Denied, Verdict::Unavailable);
    stage.client->hello();
    stage.client->subscribe({v1::SENSOR_CAMERA});
    stage.session->handle_ready();
    stage.client->read();
    const v1::ServerMessage answer = stage.client->read();
    REQUIRE(answer.has_error());
    CHECK_FALSE(answer.error().fatal());
    CHECK(stage.session->state() == State::Subscribe);
    CHECK(stage.feed.attached_count == 0);
    stage.authority.verdict = Verdict::Granted;
    stage.client->subscribe({v1::SENSOR_IMU});
    stage.session->handle_ready();
    CHECK(stage.client->read().streams().arenas_size() == 0);  // the camera's arena is not for an IMU session
    CHECK(stage.client->fd_count == 0);
    stage.session->deliver(stage.window(1));
    CHECK_FALSE(stage.client->read().window().has_frame());
    CHECK(stage.camera.free_count() == 8);
}

TEST_CASE("a client that does not say Hello in time is let go") {
    Stage stage({}, {.handshake_deadline_ns = 100});
    stage.session->check_deadline(99);
    CHECK(stage.session->state() == State::Hello);
    stage.session->check_deadline(100);
    CHECK(stage.session->end_cause() == EndCause::Timeout);
    const v1::ServerMessage farewell = stage.client->read();
    CHECK(farewell.error().fatal());
    CHECK(farewell.error().code() == v1::ERROR_CODE_PROTOCOL_VIOLATION);
}

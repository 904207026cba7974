// Registry: sessions live on the loop, and go with their peer.
#include "session/registry.hpp"

#include <catch2/catch.hpp>

#include "base/clock.hpp"
#include "session_fixture.hpp"

using namespace perceptd;
using namespace perceptd::session;
using namespace perceptd::session::test;

TEST_CASE("sessions are opened, streamed to and dropped by their peer") {
    Stage stage;  // for its arena, feed and authority
    EventLoop loop;
    Quota quota({});
    Registry registry(loop, quota, stage.authority, stage.feed);
    bool checked = false;
    std::vector<std::string> ended;
    registry.on_ended([&ended](const Session& session) { ended.emplace_back(name_of(session.end_cause())); });

    std::vector<std::uint64_t> opened;
    registry.on_opened([&opened](Session& session) { opened.push_back(session.id()); });

    ChannelPair pair = make_channel_pair();
    Client client(std::move(pair.client_end));
    Peer peer{.uid = 1000, .gid = 1000, .pid = 1, .bus_name = ":1.42"};
    const std::uint64_t id = registry.open(std::move(pair.daemon_end), peer, {}).id();
    ChannelPair other_pair = make_channel_pair();
    Client other(std::move(other_pair.client_end));
    registry.accept(std::move(other_pair.daemon_end));
    REQUIRE(registry.size() == 2);
    CHECK(opened == std::vector<std::uint64_t>{id, id + 1});
    client.hello();
    client.subscribe({v1::SENSOR_CAMERA});
    for (std::uint64_t window_id = 1; window_id <= 3; ++window_id) {
        registry.deliver(stage.window(window_id));
    }
    CHECK(stage.camera.free_count() == 8);
    // A loop runs once in its life: the checks are its events, with time for the messages before each.
    const std::unique_ptr<EventSource> checks = loop.add_timer([&] {
        CHECK(registry.find(id)->state() == Session::State::Streaming);
        for (std::uint64_t window_id = 4; window_id <= 6; ++window_id) {
            registry.deliver(stage.window(window_id));
        }
        CHECK(stage.camera.free_count() == 5);
        CHECK(registry.reclaim(stage.camera, 7) == 2);
        CHECK(registry.drop_bus_name(":1.1") == 0);
        CHECK(registry.drop_bus_name(":1.42") == 1);
        CHECK(registry.find(id) == nullptr);
        CHECK(stage.camera.free_count() == 8);
        CHECK(stage.feed.attached_count == 0);
        registry.revoke(id);  // has ended already
        registry.revoke(id + 1);
        CHECK(other.at_end());
        registry.drop_all(EndCause::Shutdown, "test");
        CHECK(registry.size() == 2);  // until the loop turns: never inside a session's own call
        checked = true;
    });
    checks->arm_at(monotonic_ns() + 50 * kNsPerMs);
    const std::unique_ptr<EventSource> end = loop.add_timer([&loop] { loop.exit(0); });
    end->arm_at(monotonic_ns() + 100 * kNsPerMs);
    loop.run();
    REQUIRE(checked);
    CHECK(registry.size() == 0);
    CHECK(ended == std::vector<std::string>{"peer-gone", "revoked"});
    CHECK(quota.session_count() == 0);
}

TEST_CASE("who finds no room is told so before the door closes") {
    Stage stage;
    EventLoop loop;
    Quota quota({.sessions_total = 1, .sessions_per_uid = 1});
    Registry registry(loop, quota, stage.authority, stage.feed);
    ChannelPair pair = make_channel_pair();
    const Client first(std::move(pair.client_end));
    registry.accept(std::move(pair.daemon_end));
    ChannelPair other_pair = make_channel_pair();
    Client second(std::move(other_pair.client_end));
    CHECK_THROWS_AS(registry.accept(std::move(other_pair.daemon_end)), Error);
    const v1::ServerMessage answer = second.read();
    CHECK(answer.error().code() == v1::ERROR_CODE_QUOTA_EXCEEDED);
    CHECK(answer.error().fatal());
    CHECK(answer.error().limit() == 1);
    CHECK(second.at_end());
    CHECK(registry.size() == 1);
}

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/event_loop.hpp"
#include "base/log.hpp"
#include "session/registry.hpp"
#include "session_fixture.hpp"

using namespace perceptd;
using namespace perceptd::session;

namespace {

constexpr int kClientThreads = 3;
constexpr int kClientsPerThread = 1000;

/// Socket ends on their way from client threads to the loop's thread.
class Doorway {
public:
    UniqueFd enter() {
        ChannelPair pair = make_channel_pair();
        const std::lock_guard guard(mutex_);
        waiting_.push_back(std::move(pair.daemon_end));
        return std::move(pair.client_end);
    }
    std::vector<UniqueFd> take() {
        const std::lock_guard guard(mutex_);
        return std::exchange(waiting_, {});
    }

private:
    std::mutex mutex_;
    std::vector<UniqueFd> waiting_;
};

/// One client that stops at a random stage of the protocol, politely or not.
void live_once(test::Client client, std::mt19937& random) {
    const auto stages = static_cast<std::uint32_t>(random() % 6);
    if (stages == 0) {
        return;
    }
    if (random() % 8 == 0) {
        client.send_bytes("\xff\xfenonsense");
    }
    client.hello();
    if (stages == 1) {
        return;
    }
    client.subscribe({v1::SENSOR_CAMERA});
    for (std::uint32_t i = 0; i < stages * 4; ++i) {
        const v1::ServerMessage message = client.read();
        if (message.has_window() && random() % 3 != 0) {
            client.release(message.window().id());
        } else if (!message.has_window()) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
        }
        if (client.at_end()) {
            return;
        }
    }
    if (random() % 2 == 0) {
        v1::ClientMessage bye;
        bye.mutable_bye();
        client.send_bytes(bye.SerializeAsString());
    }
}

}  // namespace

TEST_CASE("clients that come and go at random leave a registry as they found it", "[registry]") {
    log::set_level(log::Level::Error);  // else one line per client
    test::FakeAuthority authority;
    test::FakeFeed feed;
    const auto heap = arena::make_heap("memfd");
    arena::Arena camera(*heap, {.label = "camera0", .slot_count = 8, .slot_bytes = 4096});
    camera.seal();
    feed.offer.arenas.push_back({.id = 1, .kind = BlockKind::Frame, .arena = &camera});
    feed.offer.camera = sensor::CameraFormat{.width_px = 32, .height_px = 32, .stride_bytes = 32, .rate_hz = 30};
    Quota quota({.sessions_total = 512, .sessions_per_uid = 512, .windows_per_session = 4, .windows_per_uid = 64});
    EventLoop loop;
    Registry registry(loop, quota, authority, feed);
    const std::size_t fds_before = test::open_fd_count();
    Doorway doorway;
    std::atomic<int> running{kClientThreads};
    std::vector<std::thread> threads;
    for (int i = 0; i < kClientThreads; ++i) {
        threads.emplace_back([&, i] {
            std::mt19937 random(static_cast<std::uint32_t>(i + 1));
            for (int client = 0; client < kClientsPerThread; ++client) {
                live_once(test::Client(doorway.enter()), random);
            }
            --running;
        });
    }
    std::uint64_t window_id = 0;
    std::unique_ptr<EventSource> turn = loop.add_timer([&] {
        const bool last = running.load() == 0;  // before the doorway is looked at: nobody enters after
        for (UniqueFd& end : doorway.take()) {
            registry.open(std::move(end), Peer{.uid = 1000, .gid = 1000, .pid = 1, .bus_name = {}}, {});
        }
        WindowOut window;
        window.id = ++window_id;
        window.t1_ns = static_cast<std::int64_t>(window_id);
        if (arena::Lease lease = camera.acquire()) {
            lease.publish();
            window.frame = BlockOut{.arena_id = 1, .lease = std::move(lease), .offset_bytes = 0, .size_bytes = 4096};
        }
        registry.deliver(window);
        window = {};
        registry.reclaim(camera, 2);
        if (last && registry.size() == 0) {
            loop.exit(0);
        }
        turn->arm_at(monotonic_ns() + kNsPerMs / 4);
    });
    turn->arm_at(monotonic_ns());
    REQUIRE(loop.run() == 0);
    for (std::thread& thread : threads) {
        thread.join();
    }
    REQUIRE(registry.size() == 0);
    REQUIRE(quota.session_count() == 0);
    REQUIRE(feed.attached_count == 0);
    REQUIRE(camera.free_count() == camera.slot_count());
    REQUIRE(doorway.take().empty());
    REQUIRE(test::open_fd_count() == fds_before);
}

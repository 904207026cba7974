// A window's way to a client and back, between two processes, beside a bare ping-pong on the same kind of socket.
// The parent is the daemon (its session code), the child the client (libpercept); both run the same schedule.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "arena/arena.hpp"
#include "arena/heap.hpp"
#include "arena/lease.hpp"
#include "base/clock.hpp"
#include "channel.hpp"
#include "percentile.hpp"
#include "percept/percept.h"
#include "session/same_user_authority.hpp"
#include "session/session.hpp"
#include "window_view.hpp"

using namespace perceptd;
using session::ChannelPair;

namespace {

constexpr int kRoundsPerBatch = 500;
constexpr int kWarmUpBatches = 2;

void require(bool condition, const char* what) {
    if (!condition) {
        std::cerr << "bench_channel: " << what << '\n';
        std::exit(1);
    }
}

void wait_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    require(::poll(&entry, 1, 10'000) == 1, "the other side does not answer");
}

// ------------------------------------------------------------------------------------------------ the client

void answer_bytes(int socket) {
    char byte = 0;
    for (int i = 0; i < kRoundsPerBatch; ++i) {
        require(::recv(socket, &byte, 1, 0) == 1 && ::send(socket, &byte, 1, 0) == 1, "ping-pong");
    }
}

/// What percept_next_window and percept_release do with a packet, plus a descriptor that is closed again.
void answer_windows(percept::Channel& channel) {
    for (int i = 0; i < kRoundsPerBatch; ++i) {
        std::optional<percept::Packet> packet;
        while (!(packet = channel.receive())) {
            require(channel.wait(10'000, false) == percept::WaitResult::Readable, "no window");
        }
        require(packet->message.has_window() && packet->descriptors.size() == 1, "no window with a descriptor");
        v1::ClientMessage release;
        release.mutable_release()->add_window_ids(packet->message.window().id());
        require(channel.send(release), "no room for a Release");
    }
}

void answer_session(percept_client* client) {
    for (int i = 0; i < kRoundsPerBatch; ++i) {
        const percept_window* window = nullptr;
        require(percept_next_window(client, 10'000, &window) == PERCEPT_OK, percept_last_error(client));
        require(window->frame.luma != nullptr, "a window without its frame");
        require(percept_release(client, window) == PERCEPT_OK, percept_last_error(client));
    }
}

int run_client(UniqueFd bare, UniqueFd windows, UniqueFd session, int batches) {
    percept_client* client = nullptr;
    require(percept_connect_fd(session.release(), &client) == PERCEPT_OK, percept_last_error(nullptr));
    require(percept_subscribe(client, PERCEPT_CAMERA, 10'000) == PERCEPT_OK, percept_last_error(client));
    percept::Channel channel{percept::UniqueFd(windows.release())};
    for (int batch = 0; batch < batches; ++batch) {
        answer_bytes(bare.borrow());
        answer_windows(channel);
        answer_session(client);
    }
    percept_close(client);
    return 0;
}

// ------------------------------------------------------------------------------------------------ the daemon

class OneArenaFeed final : public session::Feed {
public:
    explicit OneArenaFeed(const arena::Arena& camera) {
        offer_.arenas.push_back({.id = 1, .kind = session::BlockKind::Frame, .arena = &camera});
        offer_.camera = sensor::CameraFormat{.width_px = 848, .height_px = 480, .stride_bytes = 848, .rate_hz = 30};
    }
    session::StreamOffer attach(std::uint64_t, session::SensorSet) override { return offer_; }
    void detach(std::uint64_t, session::SensorSet) noexcept override {}

private:
    session::StreamOffer offer_;
};

/// The daemon's half of the three conversations.
class Server {
public:
    Server(UniqueFd bare, UniqueFd windows, UniqueFd session_socket)
        : bare_(std::move(bare)),
          windows_(std::move(windows)),
          session_(
              {.id = 1, .peer = {.uid = ::geteuid(), .gid = 0, .pid = 0, .bus_name = {}}, .granted = {}, .label = {}},
              session::Channel(std::move(session_socket)), quota_.open_session(::geteuid()), authority_, feed_, {}) {
        camera_.seal();
        sensors_.add(sensor::Kind::Camera);
        while (session_.state() != session::Session::State::Streaming) {
            wait_readable(session_.borrow_fd());
            session_.handle_ready();
            require(session_.state() != session::Session::State::Closed, session_.end_text().c_str());
        }
    }

    std::vector<std::int64_t> bare_batch() {
        return batch([&] {
            char byte = 'x';
            require(::send(bare_.borrow(), &byte, 1, 0) == 1 && ::recv(bare_.borrow(), &byte, 1, 0) == 1, "ping-pong");
        });
    }

    std::vector<std::int64_t> window_batch() {
        return batch([&] {
            const session::WindowOut window = next_window();
            const auto bytes = wire_.window(window, sensors_, {});
            message_bytes = bytes.size();
            const int fd = camera_.shared_fd();
            require(windows_.send(bytes, {&fd, 1}) == Status::Ok, "no room for a window");
            session::Packet packet;
            while (windows_.receive(packet) != Status::Ok) {
                wait_readable(windows_.borrow());
            }
            const session::Request request = wire_.decode(packet.bytes);
            require(request.kind == session::Request::Kind::Release && request.window_ids[0] == window.id,
                    "no Release");
        });
    }

    std::vector<std::int64_t> session_batch() {
        return batch([&] {
            session_.deliver(next_window());
            const std::uint64_t wanted_count = session_.counters().sent_count;
            while (session_.counters().released_count < wanted_count) {
                wait_readable(session_.borrow_fd());
                session_.handle_ready();
            }
        });
    }

    std::size_t message_bytes = 0;

private:
    template <typename Round>
    std::vector<std::int64_t> batch(Round&& round) {
        std::vector<std::int64_t> durations_ns;
        durations_ns.reserve(kRoundsPerBatch);
        for (int i = 0; i < kRoundsPerBatch; ++i) {
            const std::int64_t begin_ns = monotonic_ns();
            round();
            durations_ns.push_back(monotonic_ns() - begin_ns);
        }
        return durations_ns;
    }

    session::WindowOut next_window() {
        session::WindowOut window;
        window.id = ++window_id_;
        window.t0_ns = monotonic_ns();
        window.t1_ns = window.t0_ns + 33'333'333;
        window.frame = {
            .arena_id = 1, .lease = camera_.acquire(), .offset_bytes = 0, .size_bytes = camera_.slot_bytes()};
        window.frame.lease.publish();
        window.frame_sequence = window_id_;
        return window;
    }

    std::unique_ptr<arena::Heap> heap_ = arena::make_heap("memfd");
    arena::Arena camera_{*heap_, {.label = "camera", .slot_count = 16, .slot_bytes = 848 * 480 * 3 / 2}};
    OneArenaFeed feed_{camera_};
    session::SameUserAuthority authority_;
    session::Quota quota_{{}};
    session::Wire wire_;
    session::SensorSet sensors_;
    UniqueFd bare_;
    session::Channel windows_;
    session::Session session_;
    std::uint64_t window_id_ = 0;
};

int run_daemon(Server& server, int batches) {
    bench::BatchedPercentiles bare;
    bench::BatchedPercentiles windows;
    bench::BatchedPercentiles session;
    for (int i = 0; i < batches; ++i) {
        const auto bare_ns = server.bare_batch();
        const auto windows_ns = server.window_batch();
        const auto session_ns = server.session_batch();
        if (i < kWarmUpBatches) {
            continue;
        }
        bare.add_batch(bare_ns);
        windows.add_batch(windows_ns);
        session.add_batch(session_ns);
        if (i % 5 == 0) {
            std::cerr << "batch " << i << ": " << bare.p50_us() << " us bare, " << windows.p50_us() << " us window, "
                      << session.p50_us() << " us session\n";
        }
    }
    const nlohmann::json result{{"seqpacket_pingpong_us", bare.json()},
                                {"window_message_us", windows.json()},
                                {"session_window_us", session.json()},
                                {"ratio", windows.p50_us() / bare.p50_us()},
                                {"session_ratio", session.p50_us() / bare.p50_us()},
                                {"window_message_bytes", server.message_bytes},
                                {"rounds_per_batch", kRoundsPerBatch}};
    std::cout << result.dump() << '\n';
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const int batches = kWarmUpBatches + static_cast<int>(argc > 1 ? std::strtol(argv[1], nullptr, 10) : 30);
    ChannelPair bare = session::make_channel_pair();
    ChannelPair windows = session::make_channel_pair();
    ChannelPair sessions = session::make_channel_pair();
    const pid_t child = ::fork();  // before any thread
    require(child >= 0, "fork");
    if (child == 0) {
        bare.daemon_end.reset();
        windows.daemon_end.reset();
        sessions.daemon_end.reset();
        return run_client(std::move(bare.client_end), std::move(windows.client_end), std::move(sessions.client_end),
                          batches);
    }
    bare.client_end.reset();
    windows.client_end.reset();
    sessions.client_end.reset();
    int code = 0;
    {
        Server server(std::move(bare.daemon_end), std::move(windows.daemon_end), std::move(sessions.daemon_end));
        code = run_daemon(server, batches);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return code != 0 || status != 0 ? 1 : 0;
}

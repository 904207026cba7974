// What the session tests share: a client at the other end of a socketpair, an authority and a feed that are told what
// to answer, and a real arena. Never hides an expectation: the tests check.
#pragma once

#include <dirent.h>
#include <perceptd/v1/channel.pb.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arena/arena.hpp"
#include "arena/heap.hpp"
#include "arena/lease.hpp"
#include "session/session.hpp"

namespace perceptd::session::test {

inline std::size_t open_fd_count() {
    std::size_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr) {
        ++count;
    }
    ::closedir(folder);
    return count;
}

class FakeAuthority : public Authority {
public:
    std::optional<Verdict> verdict = Verdict::Granted;  ///< empty: keeps the callback
    std::vector<std::string> asked;
    Callback kept;

    void authorize(const Peer&, const std::vector<std::string>& actions, Callback callback) override {
        asked = actions;
        if (verdict) {
            callback(*verdict, *verdict == Verdict::Granted ? "" : actions.front());
        } else {
            kept = std::move(callback);
        }
    }
};

class FakeFeed : public Feed {
public:
    StreamOffer offer;
    int attached_count = 0;
    Answers* answering = nullptr;
    Answers* answers() noexcept override { return answering; }

    StreamOffer attach(std::uint64_t, SensorSet) override {
        ++attached_count;
        return offer;
    }
    void detach(std::uint64_t, SensorSet) noexcept override { --attached_count; }
};

/// The client's end: sends and reads messages, keeps the descriptors it was given.
class Client {
public:
    explicit Client(UniqueFd socket) : socket_(std::move(socket)), channel_(socket_.duplicate()) {}

    bool send_bytes(const std::string& bytes) {
        return ::send(socket_.borrow(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    }
    bool send_fds(const std::string& bytes, const std::vector<int>& fds) {
        std::vector<std::byte> control(CMSG_SPACE(fds.size() * sizeof(int)));
        iovec part{const_cast<char*>(bytes.data()), bytes.size()};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        cmsghdr* item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
        std::memcpy(CMSG_DATA(item), fds.data(), fds.size() * sizeof(int));
        return ::sendmsg(socket_.borrow(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    }
    void hello(std::uint32_t min = 1, std::uint32_t max = 1) {
        v1::ClientMessage message;
        message.mutable_hello()->set_min_version(min);
        message.mutable_hello()->set_max_version(max);
        send_bytes(message.SerializeAsString());
    }
    void subscribe(const std::vector<v1::Sensor>& sensors) {
        v1::ClientMessage message;
        message.mutable_subscribe();
        for (const v1::Sensor sensor : sensors) {
            message.mutable_subscribe()->add_sensors(sensor);
        }
        send_bytes(message.SerializeAsString());
    }
    void release(std::uint64_t id) {
        v1::ClientMessage message;
        message.mutable_release()->add_window_ids(id);
        send_bytes(message.SerializeAsString());
    }
    /// The next message; BODY_NOT_SET when there is none or the daemon closed.
    v1::ServerMessage read() {
        v1::ServerMessage message;
        Packet packet;
        if (channel_ && channel_->receive(packet) == Status::Ok) {
            message.ParseFromArray(packet.bytes.data(), static_cast<int>(packet.bytes.size()));
            fd_count += packet.fd_count;
        }
        return message;
    }
    bool at_end() {
        char byte = 0;
        return ::recv(socket_.borrow(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
    }
    void close() {
        channel_.reset();
        socket_.reset();
    }
    std::size_t fd_count = 0;

private:
    UniqueFd socket_;
    std::optional<Channel> channel_;
};

/// One session, its client and one camera arena of eight slots.
struct Stage {
    std::unique_ptr<arena::Heap> heap = arena::make_heap("memfd");
    arena::Arena camera{*heap, {.label = "camera0", .slot_count = 8, .slot_bytes = 4096}};
    FakeAuthority authority;
    FakeFeed feed;
    Quota quota;
    std::optional<Client> client;
    std::unique_ptr<Session> session;

    explicit Stage(QuotaLimits limits = {}, Session::Options options = {}) : quota(limits) {
        camera.seal();
        feed.offer.arenas.push_back({.id = 1, .kind = BlockKind::Frame, .arena = &camera});
        feed.offer.camera = sensor::CameraFormat{.width_px = 32, .height_px = 32, .stride_bytes = 32, .rate_hz = 30};
        ChannelPair pair = make_channel_pair();
        client.emplace(std::move(pair.client_end));
        options.id = 7;
        session = std::make_unique<Session>(std::move(options), Channel(std::move(pair.daemon_end)),
                                            quota.open_session(1000), authority, feed, Session::Handlers{});
    }
    /// Up to State::Streaming, with every answer read.
    void stream() {
        client->hello();
        client->subscribe({v1::SENSOR_CAMERA});
        session->handle_ready();
        client->read();
        client->read();
    }
    /// A window whose frame is in a freshly written slot; without a block when no slot is free.
    WindowOut window(std::uint64_t id) {
        WindowOut out;
        out.id = id;
        out.t0_ns = static_cast<std::int64_t>(id) * 100;
        out.t1_ns = out.t0_ns + 100;
        if (arena::Lease lease = camera.acquire()) {
            lease.publish();
            out.frame = BlockOut{.arena_id = 1, .lease = std::move(lease), .offset_bytes = 0, .size_bytes = 4096};
        }
        return out;
    }
};

}  // namespace perceptd::session::test

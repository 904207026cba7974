// The daemon's end of a session's channel, for tests of the client library.
// Owns one arena per block kind (memfds) and its end of a socket pair.
// Never checks what it is told to send: tests make it hostile.
#pragma once

#include <fcntl.h>
#include <perceptd/v1/channel.pb.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "percept_layout.h"

namespace fake {

namespace v1 = perceptd::v1;

constexpr std::uint32_t kSlotCount = 2;
constexpr std::size_t kSlotBytes = 64 * 1024;

inline void require(bool condition, const char* what) {
    if (!condition) {
        throw std::runtime_error(what);
    }
}

/// A sealed memfd of slots and its header page, both mapped writable here.
struct Arena {
    explicit Arena(std::size_t size_bytes = kSlotBytes * kSlotCount, int seals = F_SEAL_SHRINK | F_SEAL_GROW)
        : slots_size_bytes(size_bytes), slots_fd(make(size_bytes, seals)), header_fd(make(kHeaderBytes, seals)) {
        slots = map(slots_fd, size_bytes);
        header = reinterpret_cast<percept_arena_header*>(map(header_fd, kHeaderBytes));
        header->magic = PERCEPT_ARENA_MAGIC;
        header->version = PERCEPT_LAYOUT_VERSION;
        header->slot_count = kSlotCount;
        header->slot_stride_bytes = kSlotBytes;
        header->slot_bytes = kSlotBytes;
        for (auto& generation : header->generation) {
            generation = 2;
        }
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena() {
        ::munmap(slots, slots_size_bytes);
        ::munmap(header, kHeaderBytes);
        ::close(slots_fd);
        ::close(header_fd);
    }

    [[nodiscard]] v1::ArenaDescription description(std::uint32_t id, v1::BlockKind kind) const {
        struct stat status {};
        require(::fstat(slots_fd, &status) == 0, "fstat");
        v1::ArenaDescription result;
        result.set_id(id);
        result.set_kind(kind);
        result.set_slot_count(kSlotCount);
        result.set_slot_stride_bytes(kSlotBytes);
        result.set_slot_bytes(kSlotBytes);
        result.set_inode(status.st_ino);
        return result;
    }

    void revoke(std::uint32_t slot_index) const {
        __atomic_fetch_add(&header->generation[slot_index], 1, __ATOMIC_SEQ_CST);
    }

    static constexpr std::size_t kHeaderBytes = 4096;
    std::size_t slots_size_bytes;
    int slots_fd;
    int header_fd;
    std::byte* slots = nullptr;
    percept_arena_header* header = nullptr;

private:
    static int make(std::size_t size_bytes, int seals) {
        const int fd = ::memfd_create("perceptd:test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        require(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size_bytes)) == 0, "memfd");
        require(seals == 0 || ::fcntl(fd, F_ADD_SEALS, seals) == 0, "seal");
        return fd;
    }
    static std::byte* map(int fd, std::size_t size_bytes) {
        void* const address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        require(address != MAP_FAILED, "mmap");
        return static_cast<std::byte*>(address);
    }
};

class Daemon {
public:
    Daemon() {
        std::array<int, 2> ends{};
        require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0, "socketpair");
        socket_ = ends[0];
        client_fd = ends[1];
    }
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;
    ~Daemon() { hang_up(); }

    void hang_up() {
        if (socket_ >= 0) {
            ::close(std::exchange(socket_, -1));
        }
    }

    void send(const v1::ServerMessage& message, const std::vector<int>& fds = {}) const {
        send_bytes(message.SerializeAsString(), fds);
    }

    void send_bytes(std::string bytes, const std::vector<int>& fds = {}) const {
        alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
        iovec vector{bytes.data(), bytes.size()};
        msghdr header{};
        header.msg_iov = &vector;
        header.msg_iovlen = 1;
        if (!fds.empty()) {
            header.msg_control = control.data();
            header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
            cmsghdr* const rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
            std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
        }
        require(::sendmsg(socket_, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()), "sendmsg");
    }

    /// The next message of the client, which must be there already.
    [[nodiscard]] v1::ClientMessage receive() const {
        std::string bytes(64 * 1024, '\0');
        const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
        v1::ClientMessage message;
        require(size > 0 && message.ParseFromArray(bytes.data(), static_cast<int>(size)), "no client message");
        return message;
    }

    void send_welcome(std::uint32_t version = 1) const {
        v1::ServerMessage message;
        message.mutable_welcome()->set_version(version);
        message.mutable_welcome()->set_windows_in_flight_max(4);
        send(message);
    }

    void send_refusal(const std::string& text) const {
        v1::ServerMessage message;
        message.mutable_error()->set_code(v1::ERROR_CODE_QUOTA_EXCEEDED);
        message.mutable_error()->set_text(text);
        message.mutable_error()->set_fatal(true);
        send(message);
    }

    /// Until the client's next message lies unread in the socket.
    void wait_for_message() const {
        pollfd entry{socket_, POLLIN, 0};
        require(::poll(&entry, 1, 10'000) == 1, "the client says nothing");
    }

    int client_fd = -1;

private:
    int socket_ = -1;
};

}  // namespace fake

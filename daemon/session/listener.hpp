// The socket that clients connect to: systemd's, or one of its own at a path. Owns the socket, and the file if it made
// it. Never removes a file that is not a socket, and never spins when there is no room for another client.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.hpp"
#include "base/unique_fd.hpp"

namespace perceptd::session {

/// Thread-bound (main thread). `loop` must outlive it.
class Listener {
public:
    /// Takes over one connected socket; what it throws is logged as a refusal.
    using ClientHandler = std::function<void(UniqueFd socket)>;

    /// Listens at `path` unless systemd passed a socket. Throws Error(InvalidArgument, Busy), std::system_error.
    Listener(EventLoop& loop, std::string path, ClientHandler on_client);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    /// No further client; who waits is refused by the kernel when the listener goes.
    void stop() noexcept { accepting_.reset(); }

private:
    void make_socket();
    void accept_some();

    std::string path_;
    ClientHandler on_client_;
    UniqueFd socket_;
    bool made_file_ = false;
    std::unique_ptr<EventSource> again_;  ///< armed while there are no descriptors for new clients
    std::unique_ptr<EventSource> accepting_;
};

}  // namespace perceptd::session

#include "session/listener.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace perceptd::session {
namespace {

constexpr int kAcceptsPerTurn = 16;
constexpr int kBacklog = 64;

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path)) {
        throw Error(ErrorCode::InvalidArgument, "socket path is empty or longer than 107 characters: '" + path +
                                                    "'; choose another with --channel");
    }
    std::copy(path.begin(), path.end(), address.sun_path);
    return address;
}

UniqueFd new_socket() {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
        throw_errno("socket");
    }
    return fd;
}

bool is_socket(const std::string& path) noexcept {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

}  // namespace

Listener::Listener(EventLoop& loop, std::string path, ClientHandler on_client)
    : path_(std::move(path)), on_client_(std::move(on_client)) {
    if (::sd_listen_fds(1) > 0) {
        socket_.reset(SD_LISTEN_FDS_START);
    } else {
        make_socket();
    }
    again_ = loop.add_timer([this] {
        if (accepting_) {
            accepting_->set_events(EPOLLIN);
        }
    });
    accepting_ = loop.add_io(socket_.borrow(), EPOLLIN, [this](std::uint32_t) { accept_some(); });
}

Listener::~Listener() {
    accepting_.reset();
    if (made_file_) {
        ::unlink(path_.c_str());
    }
}

void Listener::make_socket() {
    const sockaddr_un address = address_of(path_);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(new_socket().borrow(), generic, sizeof(address)) == 0) {
        throw Error(ErrorCode::Busy,
                    "another perceptd serves " + path_ + "; stop it first or choose another path with --channel");
    }
    if (errno == ECONNREFUSED && is_socket(path_)) {
        // A socket that nobody listens on: left by a daemon that was killed. Any other file is not ours to remove.
        ::unlink(path_.c_str());
    }
    socket_ = new_socket();
    if (::bind(socket_.borrow(), generic, sizeof(address)) != 0) {
        const char* const next_step =
            errno == EADDRINUSE ? "; a file that is no socket has that name: choose another path with --channel"
                                : "; make its folder or choose another path with --channel";
        throw Error(ErrorCode::InvalidArgument,
                    "the socket " + path_ + " cannot be made: " + std::generic_category().message(errno) + next_step);
    }
    made_file_ = true;
    // Who may do what is the authority's decision, not the file mode's.
    if (::chmod(path_.c_str(), 0666) != 0 || ::listen(socket_.borrow(), kBacklog) != 0) {
        const int code = errno;
        ::unlink(path_.c_str());
        errno = code;
        throw_errno("listen", path_);
    }
}

void Listener::accept_some() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
        UniqueFd client(::accept4(socket_.borrow(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!client) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                // The waiting client would wake the loop again at once, and for ever.
                log::warning("session",
                             "no descriptor or memory is left for a new client; it waits: raise LimitNOFILE");
                accepting_->set_events(0);
                again_->arm_at(monotonic_ns() + kNsPerSecond);
            }
            return;
        }
        try {
            on_client_(std::move(client));
        } catch (const std::exception& error) {
            log::warning("session", std::string("connection refused: ") + error.what());
        }
    }
}

}  // namespace perceptd::session

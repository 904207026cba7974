#include "session/listening_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"

namespace perceptd::session {

UniqueFd listen_at(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path)) {
        throw Error(ErrorCode::InvalidArgument, "socket path is empty or longer than 107 characters: '" + path +
                                                    "'; choose another with --channel");
    }
    std::copy(path.begin(), path.end(), address.sun_path);
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
        throw_errno("socket");
    }
    if (::connect(fd.borrow(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
        throw Error(ErrorCode::Busy,
                    "another perceptd serves " + path + "; stop it first or choose another path with --channel");
    }
    if (errno == ECONNREFUSED) {
        // A socket that nobody listens on: left by a daemon that was killed.
        ::unlink(path.c_str());
    }
    fd.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || ::bind(fd.borrow(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        throw_errno("bind", path);
    }
    // Who may do what is the authority's decision, not the file mode's.
    if (::chmod(path.c_str(), 0666) != 0 || ::listen(fd.borrow(), 64) != 0) {
        throw_errno("listen", path);
    }
    return fd;
}

}  // namespace perceptd::session

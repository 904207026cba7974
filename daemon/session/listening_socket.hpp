// The socket that clients without D-Bus connect to.
// Owns nothing after it was made.
// Never takes a socket away from a daemon that still serves it.
#pragma once

#include <string>

#include "base/unique_fd.hpp"

namespace perceptd::session {

/// A listening SOCK_SEQPACKET socket at `path`, open to every user; the file is the caller's to remove. Throws
/// Error(InvalidArgument, Busy), std::system_error.
UniqueFd listen_at(const std::string& path);

}  // namespace perceptd::session

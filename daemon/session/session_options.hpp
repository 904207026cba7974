// What a session is made with, and the words for how it ends.
// Owns nothing.
// Never changes while the session lives.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "session/authority.hpp"
#include "session/delivery.hpp"

namespace perceptd::session {

class Session;

/// Why a session ended; name_of() gives the word of org.perceptd1.Session.Closed.
enum class EndCause : std::uint8_t { Client, Requested, PeerGone, Revoked, Protocol, Timeout, Unresponsive, Shutdown };
const char* name_of(EndCause cause) noexcept;

enum class SessionState : std::uint8_t { Hello, Subscribe, Authorizing, Streaming, Mapping, Providing, Closed };
/// The word of org.perceptd1.Session.State.
const char* name_of(SessionState state) noexcept;

struct SessionEnd {
    EndCause cause = EndCause::Client;
    std::string text;  ///< for people
};

struct SessionOptions {
    std::uint64_t id = 0;
    Peer peer;
    SensorSet granted;  ///< authorised already (by OpenSession); Subscribe does not ask for these again
    std::uint32_t windows_in_flight_max = 8;
    std::int64_t handshake_deadline_ns = 0;  ///< hub time by which the client must stream; 0 = none
    std::string label;
};

/// Both run inside one of the session's calls and must not destroy it.
struct SessionHandlers {
    std::function<void(Session&)> on_end;      ///< once
    std::function<void(Session&)> on_waiting;  ///< wants_write() became true
};

}  // namespace perceptd::session

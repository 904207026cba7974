#include "bus/caller_lookup.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "bus/errors.hpp"

namespace perceptd::bus {
namespace {

constexpr const char* kBus = "org.freedesktop.DBus";
constexpr auto kAnswerUs = static_cast<std::uint64_t>(5 * kNsPerSecond / kNsPerUs);

std::optional<session::Peer> read_peer(sdbus::MethodReply& reply, const std::string& bus_name) {
    std::map<std::string, sdbus::Variant> credentials;
    reply >> credentials;
    const auto user = credentials.find("UnixUserID");
    if (user == credentials.end()) {
        return std::nullopt;
    }
    session::Peer peer;
    peer.uid = user->second.get<std::uint32_t>();
    if (const auto process = credentials.find("ProcessID"); process != credentials.end()) {
        peer.pid = static_cast<pid_t>(process->second.get<std::uint32_t>());
    }
    peer.bus_name = bus_name;
    return peer;
}

}  // namespace

CallerLookup::CallerLookup(Connection& connection)
    : bus_(sdbus::createProxy(connection.native(), kBus, "/org/freedesktop/DBus")) {}

void CallerLookup::identify(const std::string& bus_name, Callback callback) {
    sdbus::MethodCall call = bus_->createMethodCall(kBus, "GetConnectionCredentials");
    call << bus_name;
    bus_->callMethod(
        call,
        [bus_name, callback = std::move(callback)](sdbus::MethodReply& reply, const sdbus::Error* error) {
            std::optional<session::Peer> peer;
            if (error == nullptr) {
                guard_event("reading a caller's credentials", [&] { peer = read_peer(reply, bus_name); });
            }
            guard_event("a caller's credentials", [&] { callback(peer ? &*peer : nullptr); });
        },
        kAnswerUs);
}

void CallerLookup::ping(std::function<void()> answered) {
    const sdbus::MethodCall call = bus_->createMethodCall("org.freedesktop.DBus.Peer", "Ping");
    bus_->callMethod(
        call,
        [answered = std::move(answered)](sdbus::MethodReply&, const sdbus::Error* error) {
            if (error == nullptr) {
                guard_event("the bus's sign of life", answered);
            }
        },
        kAnswerUs);
}

}  // namespace perceptd::bus

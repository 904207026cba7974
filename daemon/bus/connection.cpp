#include "bus/connection.hpp"

#include <poll.h>

#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "bus/errors.hpp"

namespace perceptd::bus {
namespace {

constexpr int kMessagesPerTurn = 32;  // a caller that floods cannot hold the loop
constexpr std::int64_t kNeverNs = std::numeric_limits<std::int64_t>::max() / 2;

std::unique_ptr<sdbus::IConnection> connect(const Address& address) {
    try {
        switch (address.kind) {
            case Address::Kind::System: return sdbus::createSystemBusConnection();
            case Address::Kind::Session: return sdbus::createSessionBusConnection();
            case Address::Kind::Private: return sdbus::createSessionBusConnectionWithAddress(address.text);
        }
    } catch (const sdbus::Error& error) {
        const std::string name = address.kind == Address::Kind::System    ? "the system bus"
                                 : address.kind == Address::Kind::Session ? "the session bus"
                                                                          : "the bus at '" + address.text + "'";
        throw Error(ErrorCode::Unsupported, name + " cannot be reached: " + error.getMessage() +
                                                "; start dbus, name another bus with --bus=ADDRESS, or serve the "
                                                "channel socket alone with --bus=none");
    }
    throw Error(ErrorCode::Internal, "unknown kind of bus");
}

std::uint32_t epoll_events(short events) noexcept {
    return ((events & POLLIN) != 0 ? static_cast<std::uint32_t>(EPOLLIN) : 0u) |
           ((events & POLLOUT) != 0 ? static_cast<std::uint32_t>(EPOLLOUT) : 0u);
}

}  // namespace

Connection::Connection(EventLoop& loop, const Address& address) : loop_(loop), native_(connect(address)) {
    const int fd = ::fcntl(native_->getEventLoopPollData().fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) {
        throw_errno("fcntl(F_DUPFD_CLOEXEC)", "bus");
    }
    poll_fd_.reset(fd);
    readable_ = loop_.add_io(fd, 0, [this](std::uint32_t) { process(); });
    timer_ = loop_.add_timer([this] {
        armed_until_us_ = UINT64_MAX;
        process();
    });
    prepare_ = loop_.add_prepare([this] { rearm(); });
}

Connection::~Connection() = default;

void Connection::process() noexcept {
    try {
        for (int i = 0; is_open_ && i < kMessagesPerTurn && native_->processPendingRequest(); ++i) {
        }
    } catch (const std::exception& error) {
        lose(error.what());
    }
}

void Connection::rearm() noexcept {
    if (!is_open_) {
        return;
    }
    try {
        const sdbus::IConnection::PollData wanted = native_->getEventLoopPollData();
        if (wanted.events != armed_events_) {
            readable_->set_events(epoll_events(wanted.events));
            armed_events_ = wanted.events;
        }
        if (wanted.timeout_usec != armed_until_us_) {
            const bool is_never = wanted.timeout_usec > static_cast<std::uint64_t>(kNeverNs / kNsPerUs);
            timer_->arm_at(is_never ? kNeverNs : static_cast<std::int64_t>(wanted.timeout_usec) * kNsPerUs);
            armed_until_us_ = wanted.timeout_usec;
        }
    } catch (const std::exception& error) {
        lose(error.what());
    }
}

void Connection::lose(const std::string& reason) noexcept {
    if (!std::exchange(is_open_, false)) {
        return;
    }
    // The caller is one of our event sources: they go after it has returned.
    guard_event("closing the bus", [&] {
        loop_.defer([this, reason, alive = std::weak_ptr<char>(alive_)] {
            if (alive.expired()) {
                return;
            }
            readable_.reset();
            timer_.reset();
            prepare_.reset();
            poll_fd_.reset();
            if (const LostHandler lost = std::move(lost_)) {
                lost(reason);
            }
        });
    });
}

std::string Connection::owner_of(const std::string& name) try {
    const auto proxy = sdbus::createProxy(*native_, "org.freedesktop.DBus", "/org/freedesktop/DBus");
    std::uint32_t pid = 0;
    proxy->callMethod("GetConnectionUnixProcessID")
        .onInterface("org.freedesktop.DBus")
        .withArguments(name)
        .storeResultsTo(pid);
    return "process " + std::to_string(pid);
} catch (const sdbus::Error&) {
    return "a process that the bus does not name";
}

void Connection::request_name(const std::string& name) {
    try {
        native_->requestName(name);
    } catch (const sdbus::Error& error) {
        if (error.getName() == "org.freedesktop.DBus.Error.AccessDenied") {
            throw Error(
                ErrorCode::NotAuthorized,
                "the bus does not let this user own " + name +
                    "; install org.perceptd1.conf where the bus looks for policies and run as user perceptd, or "
                    "use another bus with --bus");
        }
        if (error.getName() == "org.freedesktop.DBus.Error.FileExists") {
            throw Error(ErrorCode::Busy, name + " is owned by " + owner_of(name) +
                                             " already; stop that daemon first, or use another bus with --bus");
        }
        throw Error(ErrorCode::Unsupported, "the bus does not give the name " + name + ": " + error.getMessage());
    }
}

}  // namespace perceptd::bus

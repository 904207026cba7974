// The protocol of a session from the client's side: Hello, Subscribe, windows in, releases out.
// Owns the channel, the arenas, the held windows and the last error.
// Never waits unless the caller gave it time to.
#pragma once

#include <perceptd/v1/channel.pb.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arena_view.hpp"
#include "channel.hpp"
#include "percept/percept.h"
#include "window_view.hpp"

namespace percept {

class Connection {
public:
    /// Greets the daemon and waits a few seconds for its answer. Throws Failure.
    explicit Connection(Channel channel);

    /// Each gives back a status that is not negative, or throws Failure.
    int subscribe(std::uint32_t sensors, int timeout_ms);
    int next_window(int timeout_ms, const percept_window*& window);
    void release(const percept_window* window);
    int end(int timeout_ms);

    [[nodiscard]] bool is_valid(const percept_window* window) const noexcept;
    [[nodiscard]] int fd() const noexcept { return channel_.fd(); }
    [[nodiscard]] std::uint32_t windows_in_flight_max() const noexcept { return windows_in_flight_max_; }
    [[nodiscard]] const std::string& heap() const noexcept { return heap_; }
    [[nodiscard]] percept_notice last_notice() const noexcept;
    [[nodiscard]] const percept_statistics& last_statistics() const noexcept { return statistics_; }
    [[nodiscard]] const std::string& last_error() const noexcept { return last_error_; }

    /// Keeps the sentence; after a protocol error no further message is read.
    void note(int status, const std::string& text);

private:
    std::optional<Packet> next_packet(int timeout_ms);
    void require_alive() const;
    void send_or_throw(const perceptd::v1::ClientMessage& message);
    void flush_releases();
    void accept(const perceptd::v1::Welcome& welcome);
    void accept(const perceptd::v1::Streams& streams, std::vector<UniqueFd> descriptors);
    void accept(const perceptd::v1::Notice& notice);
    [[noreturn]] void refuse(const perceptd::v1::Error& error);
    bool hold(const perceptd::v1::Window& message);

    Channel channel_;
    ArenaViews arenas_;
    std::vector<std::unique_ptr<WindowView>> held_;  // after arenas_: a view ends its reads on them
    std::vector<std::uint64_t> unsent_releases_;
    std::optional<perceptd::v1::CameraFormat> camera_;
    std::uint32_t windows_in_flight_max_ = 0;
    std::string heap_ = "none";
    std::string last_error_;
    std::string notice_text_;
    percept_statistics statistics_{};
    std::uint64_t notice_count_ = 0;
    std::uint32_t notice_kind_ = 0;
    int dead_status_ = PERCEPT_OK;
    bool subscribed_ = false;
    bool streams_complete_ = false;
    bool ended_ = false;
};

}  // namespace percept

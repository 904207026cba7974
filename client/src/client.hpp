// The protocol of a session from the client's side: Hello, Subscribe, windows and answers in, releases out.
// Owns the channel, the arenas, the held windows and the last error.
// Never waits unless the caller gave it time to.
#pragma once

#include <perceptd/v1/channel.pb.h>

#include <deque>
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
    int ask(const percept_question& question, int timeout_ms, percept_answer& answer);
    int resume(std::uint64_t generation_id, std::uint64_t next_number, int timeout_ms, percept_answer& answer);
    int next_part(int timeout_ms, const percept_part*& part);
    void stop(std::uint64_t generation_id);

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
    /// Anything that may come at any time: what nobody waits for now is kept for whoever asks next.
    void accept(Packet packet);
    int await_answer(std::uint64_t request_id, int timeout_ms, percept_answer& answer);
    [[noreturn]] void refuse(const perceptd::v1::Error& error);
    bool hold(const perceptd::v1::Window& message);

    Channel channel_;
    ArenaViews arenas_;
    std::vector<std::unique_ptr<WindowView>> held_;     // after arenas_: a view ends its reads on them
    std::deque<const percept_window*> unread_windows_;  ///< held, and not given out yet
    std::deque<perceptd::v1::Token> unread_parts_;
    perceptd::v1::Token part_token_;  ///< what part_ points into
    percept_part part_{};
    std::optional<perceptd::v1::ServerMessage> reply_;  ///< the newest GenerationBegun or GenerationRefused
    std::uint64_t request_count_ = 0;
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

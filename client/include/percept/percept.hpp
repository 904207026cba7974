// C++20 over percept.h: errors become exceptions, a window releases itself.
// Owns one percept_client per Client and one held window per Window.
// Never adds state of its own: mixing it with the C calls is fine.
#pragma once

#include <percept/percept.h>

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace percept {

/// A negative status of the C interface and the library's sentence about it.
class Error : public std::runtime_error {
public:
    Error(int status, const std::string& text) : std::runtime_error(text), status_(status) {}
    [[nodiscard]] int status() const noexcept { return status_; }

private:
    int status_;
};

/// A held window; destruction releases it. May not outlive its Client.
class [[nodiscard]] Window {
public:
    Window(percept_client* client, const percept_window* window) noexcept : client_(client), window_(window) {}
    Window(Window&& other) noexcept : client_(other.client_), window_(std::exchange(other.window_, nullptr)) {}
    Window& operator=(Window&& other) noexcept {
        std::swap(client_, other.client_);
        std::swap(window_, other.window_);
        return *this;
    }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
    ~Window() {
        if (window_ != nullptr) {
            percept_release(client_, window_);
        }
    }

    const percept_window* operator->() const noexcept { return window_; }
    const percept_window& operator*() const noexcept { return *window_; }

    /// True: all that was read from the window so far counts.
    [[nodiscard]] bool is_valid() const noexcept { return percept_window_is_valid(client_, window_) == 1; }
    [[nodiscard]] bool has_frame() const noexcept { return window_->frame.luma != nullptr; }

    [[nodiscard]] std::span<const percept_patch> patches() const noexcept {
        return {window_->patches, window_->patch_block.patch_count};
    }
    [[nodiscard]] std::span<const percept_mel_slice> mel_slices() const noexcept {
        return {window_->mel_slices, window_->mel_block.slice_count};
    }
    [[nodiscard]] std::span<const percept_imu_row> imu_rows() const noexcept {
        return {window_->imu_rows, window_->motion_block.row_count};
    }
    [[nodiscard]] std::span<const percept_motion_feature> motion_features() const noexcept {
        return {window_->motion_features, window_->motion_block.feature_count};
    }
    [[nodiscard]] std::span<const percept_sound> sounds() const noexcept {
        return {window_->sounds, window_->sound_count};
    }

private:
    percept_client* client_;
    const percept_window* window_;
};

/// A session with the daemon. Move-only; one thread at a time.
class Client {
public:
    /// Throws Error.
    explicit Client(const std::string& socket_path = PERCEPT_DEFAULT_SOCKET) {
        check(percept_connect(socket_path.c_str(), &client_));
    }
    /// Takes over an open channel. Throws Error.
    [[nodiscard]] static Client adopt(int channel_fd) {
        Client client(nullptr);
        client.check(percept_connect_fd(channel_fd, &client.client_));
        return client;
    }
    Client(Client&& other) noexcept : client_(std::exchange(other.client_, nullptr)), ended_(other.ended_) {}
    Client& operator=(Client&& other) noexcept {
        std::swap(client_, other.client_);
        std::swap(ended_, other.ended_);
        return *this;
    }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() { percept_close(client_); }

    /// Throws Error, also when the answer does not come in time.
    void subscribe(std::uint32_t sensors, int timeout_ms = -1) {
        if (check(percept_subscribe(client_, sensors, timeout_ms)) == PERCEPT_TIMEOUT) {
            throw Error(PERCEPT_TIMEOUT, "perceptd did not answer the subscription in time");
        }
    }

    /// Nothing: no window in time, or the stream has ended (ended() tells). Throws Error.
    [[nodiscard]] std::optional<Window> next_window(int timeout_ms = -1) {
        const percept_window* window = nullptr;
        const int status = check(percept_next_window(client_, timeout_ms, &window));
        ended_ = status == PERCEPT_END_OF_STREAM;
        return status == PERCEPT_OK ? std::optional<Window>(std::in_place, client_, window) : std::nullopt;
    }

    /// Asks a model; the answer has begun. Throws Error, also when that does not happen in time.
    [[nodiscard]] percept_answer ask(const percept_question& question, int timeout_ms = -1) {
        percept_answer answer{};
        if (check(percept_ask(client_, &question, timeout_ms, &answer)) == PERCEPT_TIMEOUT) {
            throw Error(PERCEPT_TIMEOUT, "the answer did not begin in time");
        }
        return answer;
    }
    /// Reads an answer from a token on. Throws as ask().
    [[nodiscard]] percept_answer resume(std::uint64_t generation_id, std::uint64_t next_number, int timeout_ms = -1) {
        percept_answer answer{};
        if (check(percept_resume(client_, generation_id, next_number, timeout_ms, &answer)) == PERCEPT_TIMEOUT) {
            throw Error(PERCEPT_TIMEOUT, "the answer did not begin in time");
        }
        return answer;
    }
    /// Null: no part in time. Good until the next call on the client. Throws Error.
    [[nodiscard]] const percept_part* next_part(int timeout_ms = -1) {
        const percept_part* part = nullptr;
        check(percept_next_part(client_, timeout_ms, &part));
        return part;
    }
    /// Ends an answer. Throws Error.
    void stop(std::uint64_t generation_id) { check(percept_stop(client_, generation_id)); }

    /// Ends the session; false = the final statistics did not come in time. Throws Error.
    bool end(int timeout_ms = 2000) { return check(percept_end(client_, timeout_ms)) == PERCEPT_OK; }
    [[nodiscard]] percept_statistics last_statistics() const noexcept { return percept_last_statistics(client_); }

    [[nodiscard]] bool ended() const noexcept { return ended_; }
    [[nodiscard]] int fd() const noexcept { return percept_fd(client_); }
    [[nodiscard]] std::string heap() const { return percept_heap(client_); }
    [[nodiscard]] percept_notice last_notice() const noexcept { return percept_last_notice(client_); }
    [[nodiscard]] percept_client* handle() const noexcept { return client_; }

private:
    explicit Client(std::nullptr_t) noexcept {}

    int check(int status) const {
        if (status < 0) {
            throw Error(status, percept_last_error(client_));
        }
        return status;
    }

    percept_client* client_ = nullptr;
    bool ended_ = false;
};

}  // namespace percept

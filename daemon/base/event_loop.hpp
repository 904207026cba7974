// The main thread's loop: sd-event behind a C++ face. Owns the sd_event and its sources.
// Nothing thrown by a callback crosses libsystemd's frames: it is logged and the source stays or goes as stated.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <memory>

struct sd_event;
struct sd_event_source;

namespace perceptd {

/// One registered event source; destroying it removes the source. Thread-bound to the loop's thread.
class EventSource {
public:
    EventSource() noexcept = default;
    virtual ~EventSource() = default;
    EventSource(const EventSource&) = delete;
    EventSource& operator=(const EventSource&) = delete;
    /// Changes the epoll mask of an I/O source (EPOLLIN | EPOLLOUT ...).
    virtual void set_events(std::uint32_t events) = 0;
    /// Moves a timer to `at_ns` (CLOCK_MONOTONIC) and arms it once.
    virtual void arm_at(std::int64_t at_ns) = 0;
};

/// Thread-bound to the thread that runs it. Set-up calls throw std::system_error.
class EventLoop {
public:
    using IoHandler = std::function<void(std::uint32_t ready_events)>;
    using Handler = std::function<void()>;

    EventLoop();
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    /// Calls `handler` while `fd` is ready. The fd is borrowed and must outlive the source.
    [[nodiscard]] std::unique_ptr<EventSource> add_io(int fd, std::uint32_t events, IoHandler handler);
    /// A one-shot timer; unarmed until arm_at().
    [[nodiscard]] std::unique_ptr<EventSource> add_timer(Handler handler);
    /// Calls `handler` for a signal (blocked in all threads by the caller beforehand).
    [[nodiscard]] std::unique_ptr<EventSource> add_signal(int signal_number, Handler handler);
    /// Runs `handler` once after the current dispatch.
    void defer(Handler handler);
    /// Runs `handler` before every poll (sd_event_source_set_prepare): the place to re-arm a bus bridge.
    [[nodiscard]] std::unique_ptr<EventSource> add_prepare(Handler handler);

    /// Runs until exit(); gives back the exit code.
    int run();
    void exit(int code) noexcept;

    /// The sd_event, for sd_notify's watchdog and the bus bridge.
    [[nodiscard]] sd_event* native() const noexcept { return event_; }

private:
    sd_event* event_ = nullptr;
};

}  // namespace perceptd

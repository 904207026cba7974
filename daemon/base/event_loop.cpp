#include "base/event_loop.hpp"

#include <systemd/sd-event.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace perceptd {
namespace {

void check(int result, const char* operation) {
    if (result < 0) {
        errno = -result;
        throw_errno(operation);
    }
}

/// Runs a handler so that nothing it throws crosses a C frame.
template <typename Call>
int guarded(Call&& call) noexcept {
    try {
        call();
    } catch (const std::exception& error) {
        log::error("base", std::string("event handler failed, going on: ") + error.what());
    } catch (...) {
        log::error("base", "event handler failed with an unknown exception, going on");
    }
    return 0;
}

class Source final : public EventSource {
public:
    Source() = default;
    ~Source() override {
        if (native != nullptr) {
            sd_event_source_set_enabled(native, SD_EVENT_OFF);
            sd_event_source_unref(native);
        }
    }
    void set_events(std::uint32_t events) override {
        check(sd_event_source_set_io_events(native, events), "sd_event_source_set_io_events");
    }
    void arm_at(std::int64_t at_ns) override {
        // Rounded up: a timer never runs before its time.
        const auto at_us = static_cast<std::uint64_t>((at_ns + 999) / 1000);
        check(sd_event_source_set_time(native, at_us), "sd_event_source_set_time");
        check(sd_event_source_set_enabled(native, SD_EVENT_ONESHOT), "sd_event_source_set_enabled");
    }

    sd_event_source* native = nullptr;
    EventLoop::IoHandler on_io;
    EventLoop::Handler on_event;
};

int dispatch_io(sd_event_source*, int, std::uint32_t ready_events, void* data) noexcept {
    return guarded([&] { static_cast<Source*>(data)->on_io(ready_events); });
}
int dispatch_timer(sd_event_source*, std::uint64_t, void* data) noexcept {
    return guarded([&] { static_cast<Source*>(data)->on_event(); });
}
int dispatch_signal(sd_event_source*, const signalfd_siginfo*, void* data) noexcept {
    return guarded([&] { static_cast<Source*>(data)->on_event(); });
}
int dispatch_prepare(sd_event_source*, void* data) noexcept {
    return guarded([&] { static_cast<Source*>(data)->on_event(); });
}
int ignore_defer(sd_event_source*, void*) noexcept {
    return 0;
}
int dispatch_once(sd_event_source* native, void* data) noexcept {
    const int result = guarded(*static_cast<EventLoop::Handler*>(data));
    sd_event_source_set_floating(native, 0);  // the loop's reference was the last one: gone after this dispatch
    return result;
}

}  // namespace

EventLoop::EventLoop() {
    check(sd_event_new(&event_), "sd_event_new");
}

EventLoop::~EventLoop() {
    sd_event_unref(event_);
}

std::unique_ptr<EventSource> EventLoop::add_io(int fd, std::uint32_t events, IoHandler handler) {
    auto source = std::make_unique<Source>();
    source->on_io = std::move(handler);
    check(sd_event_add_io(event_, &source->native, fd, events, dispatch_io, source.get()), "sd_event_add_io");
    return source;
}

std::unique_ptr<EventSource> EventLoop::add_timer(Handler handler) {
    auto source = std::make_unique<Source>();
    source->on_event = std::move(handler);
    check(sd_event_add_time(event_, &source->native, CLOCK_MONOTONIC, UINT64_MAX, 1, dispatch_timer, source.get()),
          "sd_event_add_time");
    check(sd_event_source_set_enabled(source->native, SD_EVENT_OFF), "sd_event_source_set_enabled");
    return source;
}

std::unique_ptr<EventSource> EventLoop::add_signal(int signal_number, Handler handler) {
    auto source = std::make_unique<Source>();
    source->on_event = std::move(handler);
    check(sd_event_add_signal(event_, &source->native, signal_number, dispatch_signal, source.get()),
          "sd_event_add_signal");
    return source;
}

void EventLoop::defer(Handler handler) {
    auto owned = std::make_unique<Handler>(std::move(handler));
    sd_event_source* native = nullptr;
    check(sd_event_add_defer(event_, &native, dispatch_once, owned.get()), "sd_event_add_defer");
    // From here on the loop owns both, also when it ends before they ran.
    sd_event_source_set_destroy_callback(native, [](void* data) { delete static_cast<Handler*>(data); });
    static_cast<void>(owned.release());
    sd_event_source_set_floating(native, 1);
    sd_event_source_unref(native);
}

std::unique_ptr<EventSource> EventLoop::add_prepare(Handler handler) {
    auto source = std::make_unique<Source>();
    source->on_event = std::move(handler);
    // A defer source that stays off never dispatches, but a prepare callback needs an enabled source: use a timer at
    // the end of time.
    check(
        sd_event_add_time(
            event_, &source->native, CLOCK_MONOTONIC, UINT64_MAX, 1,
            [](sd_event_source* native, std::uint64_t, void*) { return ignore_defer(native, nullptr); }, source.get()),
        "sd_event_add_time");
    check(sd_event_source_set_enabled(source->native, SD_EVENT_ON), "sd_event_source_set_enabled");
    check(sd_event_source_set_prepare(source->native, dispatch_prepare), "sd_event_source_set_prepare");
    return source;
}

int EventLoop::run() {
    const int code = sd_event_loop(event_);
    check(code, "sd_event_loop");
    return code;
}

void EventLoop::exit(int code) noexcept {
    sd_event_exit(event_, code);
}

}  // namespace perceptd

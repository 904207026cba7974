// A polkit that answers as a test wants, from a thread of its own.
// Owns its bus connection and thread.
// Never asks anybody anything.
#pragma once

#include <systemd/sd-bus.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/bus_handle.hpp"

namespace perceptd::test {

class FakePolkit {
public:
    /// Challenge: authentication would help, and then does. Refuse: it does not. Fail: an error instead of an answer.
    enum class Mode : std::uint8_t { Allow, Deny, Challenge, Refuse, Hang, Garbage, Empty, Fail };

    struct Question {
        std::string kind;  ///< of subject
        std::string action;
        std::uint32_t flags = 0;
        std::string name;              ///< system-bus-name
        std::uint64_t start_time = 0;  ///< unix-process
        std::uint32_t pid = 0;
        std::int32_t uid = -1;
    };

    explicit FakePolkit(const std::string& address) : bus_(open_bus(address)) {
        check_bus(sd_bus_add_object_vtable(bus_, nullptr, kPath, kInterface, kMembers, this));
        check_bus(sd_bus_request_name(bus_, "org.freedesktop.PolicyKit1", 0));
        thread_ = std::thread([this] { run(); });
    }
    ~FakePolkit() {
        stop_ = true;
        thread_.join();
        sd_bus_flush_close_unref(bus_);
    }
    FakePolkit(const FakePolkit&) = delete;
    FakePolkit& operator=(const FakePolkit&) = delete;

    void set(Mode mode) { mode_ = mode; }
    /// Denies this action whatever the mode.
    void deny(const std::string& action) {
        const std::lock_guard lock(mutex_);
        denied_ = action;
    }
    /// Emits Changed.
    void change() { ++changes_wanted_; }
    [[nodiscard]] std::vector<Question> questions() const {
        const std::lock_guard lock(mutex_);
        return questions_;
    }

private:
    static constexpr const char* kPath = "/org/freedesktop/PolicyKit1/Authority";
    static constexpr const char* kInterface = "org.freedesktop.PolicyKit1.Authority";
    static const sd_bus_vtable kMembers[];

    static int on_question(sd_bus_message* message, void* self, sd_bus_error* error) {
        return static_cast<FakePolkit*>(self)->answer(message, error);
    }
    static int on_cancel(sd_bus_message* message, void*, sd_bus_error*) {
        return sd_bus_reply_method_return(message, nullptr);
    }
    static Question read(sd_bus_message* message) {
        Question question;
        const char* text = nullptr;
        check_bus(sd_bus_message_enter_container(message, 'r', "sa{sv}"));
        check_bus(sd_bus_message_read(message, "s", &text));
        question.kind = text;
        check_bus(sd_bus_message_enter_container(message, 'a', "{sv}"));
        while (sd_bus_message_enter_container(message, 'e', "sv") > 0) {
            check_bus(sd_bus_message_read(message, "s", &text));
            const std::string key = text;
            if (key == "name") {
                check_bus(sd_bus_message_read(message, "v", "s", &text));
                question.name = text;
            } else if (key == "pid") {
                check_bus(sd_bus_message_read(message, "v", "u", &question.pid));
            } else if (key == "start-time") {
                check_bus(sd_bus_message_read(message, "v", "t", &question.start_time));
            } else if (key == "uid") {
                check_bus(sd_bus_message_read(message, "v", "i", &question.uid));
            } else {
                check_bus(sd_bus_message_skip(message, "v"));
            }
            check_bus(sd_bus_message_exit_container(message));
        }
        check_bus(sd_bus_message_exit_container(message));
        check_bus(sd_bus_message_exit_container(message));
        check_bus(sd_bus_message_read(message, "s", &text));
        question.action = text;
        check_bus(sd_bus_message_skip(message, "a{ss}"));
        check_bus(sd_bus_message_read(message, "u", &question.flags));
        return question;
    }
    int answer(sd_bus_message* message, sd_bus_error* error) {
        const Question question = read(message);
        bool is_denied = false;
        {
            const std::lock_guard lock(mutex_);
            questions_.push_back(question);
            is_denied = question.action == denied_;
        }
        const bool has_dialogue = (question.flags & 1u) != 0;
        const auto reply = [message](int authorized, int challenge) {
            return sd_bus_reply_method_return(message, "(bba{ss})", authorized, challenge, 0);
        };
        switch (is_denied ? Mode::Deny : mode_.load()) {
            case Mode::Allow: return reply(1, 0);
            case Mode::Deny: return reply(0, 0);
            case Mode::Challenge: return has_dialogue ? reply(1, 0) : reply(0, 1);
            case Mode::Refuse: return has_dialogue ? reply(0, 0) : reply(0, 1);
            case Mode::Hang: return 1;
            case Mode::Garbage: return sd_bus_reply_method_return(message, "as", 2, "yes", "of course");
            case Mode::Empty: return sd_bus_reply_method_return(message, nullptr);
            case Mode::Fail: break;
        }
        return sd_bus_error_set(error, "org.freedesktop.PolicyKit1.Error.Failed", "the action is not registered");
    }
    void run() {
        std::uint32_t changes = 0;
        while (!stop_) {
            if (changes != changes_wanted_) {
                changes = changes_wanted_;
                sd_bus_emit_signal(bus_, kPath, kInterface, "Changed", nullptr);
            }
            const int result = sd_bus_process(bus_, nullptr);
            if (result < 0) {
                return;
            }
            if (result == 0 && sd_bus_wait(bus_, 10'000) < 0) {
                return;
            }
        }
    }

    sd_bus* bus_;
    mutable std::mutex mutex_;
    std::vector<Question> questions_;
    std::string denied_;
    std::atomic<Mode> mode_{Mode::Allow};
    std::atomic<std::uint32_t> changes_wanted_{0};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

inline const sd_bus_vtable FakePolkit::kMembers[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})", FakePolkit::on_question,
                  SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD("CancelCheckAuthorization", "s", "", FakePolkit::on_cancel, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_SIGNAL("Changed", "", 0), SD_BUS_VTABLE_END};

}  // namespace perceptd::test

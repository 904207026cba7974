// A hostile caller: bus_garbage ADDRESS SEED COUNT. Sends COUNT calls with random members, types, keys and sizes to the
// daemon's objects, without waiting for the answers. Prints how many answers were errors and how many were not.
#include <systemd/sd-bus.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "support/bus_handle.hpp"

namespace {

struct Tally {
    std::uint64_t error_count = 0;
    std::uint64_t return_count = 0;
};

class Caller {
public:
    Caller(sd_bus* bus, std::uint32_t seed) : bus_(bus), random_(seed) {}

    void call_once() {
        sd_bus_message* message = nullptr;
        static const std::vector<std::string> paths{"/org/perceptd1", "/org/perceptd1/sensor/camera",
                                                    "/org/perceptd1/session/1", "/org/perceptd1/session/x", "/"};
        static const std::vector<std::string> interfaces{"org.perceptd1.Manager", "org.perceptd1.Session",
                                                         "org.freedesktop.DBus.Properties",
                                                         "org.freedesktop.DBus.ObjectManager"};
        static const std::vector<std::string> members{"OpenSession", "OpenSession", "Close", "Get",
                                                      "GetAll",      "Set",         "Fly",   "GetManagedObjects"};
        const std::string& member = pick(members);
        const std::string interface = member == "OpenSession" ? interfaces[0] : pick(interfaces);
        sd_bus_message_new_method_call(bus_, &message, "org.perceptd1", pick(paths).c_str(), interface.c_str(),
                                       member.c_str());
        if (member == "OpenSession" && below(4) != 0) {
            append_options(message);
        } else {
            for (std::uint32_t i = below(4); i > 0; --i) {
                append_value(message);
            }
        }
        // The library itself refuses some of it, and the bus would throw us out for the rest of that.
        sent_count_ += sd_bus_call_async(bus_, nullptr, message, count_answer, &tally_, 20'000'000) >= 0 ? 1 : 0;
        sd_bus_message_unref(message);
    }
    [[nodiscard]] bool is_answered() const { return tally_.error_count + tally_.return_count == sent_count_; }
    [[nodiscard]] const Tally& tally() const { return tally_; }

private:
    static int count_answer(sd_bus_message* answer, void* to, sd_bus_error*) {
        Tally& tally = *static_cast<Tally*>(to);
        ++(sd_bus_message_get_error(answer) != nullptr ? tally.error_count : tally.return_count);
        return 1;
    }
    std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_()) % limit; }
    const std::string& pick(const std::vector<std::string>& from) {
        return from[below(static_cast<std::uint32_t>(from.size()))];
    }
    std::string text() {
        switch (below(6)) {
            case 0: return std::string(below(300'000), 'A');
            case 1: return "\xC3\xA9\xF0\x9F\x98\x80";
            case 2: return "camera";
            case 3: return "%s%n\x1B[31m";
            case 4: return std::string(64 + below(3), 'x');
            default: return "";
        }
    }
    void append_value(sd_bus_message* message) {
        const std::string word = text();
        switch (below(7)) {
            case 0: sd_bus_message_append(message, "s", word.c_str()); break;
            case 1: sd_bus_message_append(message, "u", below(UINT32_MAX)); break;
            case 2: sd_bus_message_append(message, "as", 3, "camera", word.c_str(), "imu"); break;
            case 3: sd_bus_message_append(message, "a{ss}", 1, word.c_str(), "x"); break;
            case 4: sd_bus_message_append(message, "(tb)", std::uint64_t{1} << below(63), 1); break;
            case 5: sd_bus_message_append(message, "v", "av", 2, "s", "deep", "av", 1, "d", 1.5); break;
            default: sd_bus_message_append(message, "h", 0); break;
        }
    }
    void append_options(sd_bus_message* message) {
        sd_bus_message_open_container(message, 'a', "{sv}");
        for (std::uint32_t i = below(below(8) == 0 ? 400 : 4); i > 0; --i) {
            const std::string word = text();
            static const std::vector<std::string> keys{"sensors", "label", "windows-in-flight", "model", ""};
            const std::string key = below(8) == 0 ? text() : pick(keys);
            switch (below(6)) {
                case 0: sd_bus_message_append(message, "{sv}", key.c_str(), "s", word.c_str()); break;
                case 1: sd_bus_message_append(message, "{sv}", key.c_str(), "u", below(6)); break;
                case 2: sd_bus_message_append(message, "{sv}", key.c_str(), "as", 1, word.c_str()); break;
                case 3:
                    if (i <= 8) {  // the bus throws out who sends more than sixteen descriptors in one message
                        sd_bus_message_append(message, "{sv}", key.c_str(), "h", 0);
                    }
                    break;
                case 4: sd_bus_message_append(message, "{sv}", key.c_str(), "v", "v", "s", word.c_str()); break;
                default: sd_bus_message_append(message, "{sv}", key.c_str(), "as", 0); break;
            }
        }
        sd_bus_message_close_container(message);
    }

    sd_bus* bus_;
    std::mt19937 random_;
    Tally tally_;
    std::uint64_t sent_count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        return 2;
    }
    sd_bus* const bus = perceptd::test::open_bus(argv[1]);
    Caller caller(bus, static_cast<std::uint32_t>(std::atoi(argv[2])));
    int left_count = std::atoi(argv[3]);
    while (left_count > 0 || !caller.is_answered()) {
        for (int i = 0; i < 20 && left_count > 0; ++i, --left_count) {
            caller.call_once();
        }
        int result = 0;
        while ((result = sd_bus_process(bus, nullptr)) > 0) {
        }
        result = result < 0 || caller.is_answered() ? result : sd_bus_wait(bus, 1'000'000);
        if (result < 0 && result != -EINTR) {
            std::cout << "the bus threw us out: " << std::strerror(-result) << std::endl;
            return 1;
        }
    }
    std::cout << caller.tally().error_count << " errors, " << caller.tally().return_count << " returns" << std::endl;
}

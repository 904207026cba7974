// A client over the bus: bus_session ADDRESS SENSORS WINDOWS. Opens a session, reads WINDOWS windows through
// libpercept, then waits: "close" on standard input calls Close, end of input leaves the bus, end of the channel is
// reported. Prints what happens, one line each.
#include <fcntl.h>
#include <percept/percept.h>
#include <poll.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "support/bus_handle.hpp"

namespace {

struct Session {
    std::string path;
    int channel_fd = -1;
};

void print_error(sd_bus_message* answer, const sd_bus_error& error) {
    std::cout << "error " << error.name << " " << error.message;
    // What follows the text is our own addition; read it from the error's message.
    const char* text = nullptr;
    if (answer != nullptr && sd_bus_message_read(answer, "s", &text) > 0 &&
        sd_bus_message_enter_container(answer, 'a', "{sv}") > 0) {
        while (sd_bus_message_enter_container(answer, 'e', "sv") > 0) {
            char type = 0;
            const char* contents = nullptr;
            sd_bus_message_read(answer, "s", &text);
            sd_bus_message_peek_type(answer, &type, &contents);
            std::cout << " [" << text << " " << contents << "]";
            sd_bus_message_skip(answer, "v");
            sd_bus_message_exit_container(answer);
        }
    }
    std::cout << std::endl;
}

/// Sends without blocking in sd_bus_call, which drops what follows the text of an error.
sd_bus_message* ask(sd_bus* bus, sd_bus_message* question) {
    sd_bus_message* answer = nullptr;
    const auto keep = [](sd_bus_message* message, void* to, sd_bus_error*) {
        *static_cast<sd_bus_message**>(to) = sd_bus_message_ref(message);
        return 1;
    };
    sd_bus_call_async(bus, nullptr, question, keep, &answer, 30'000'000);
    while (answer == nullptr) {
        const int result = sd_bus_process(bus, nullptr);
        if (result < 0 || (result == 0 && sd_bus_wait(bus, UINT64_MAX) < 0)) {
            return nullptr;
        }
    }
    return answer;
}

bool open_session(sd_bus* bus, const std::string& sensors, Session& session) {
    sd_bus_message* question = nullptr;
    sd_bus_message_new_method_call(bus, &question, "org.perceptd1", "/org/perceptd1", "org.perceptd1.Manager",
                                   "OpenSession");
    sd_bus_message_open_container(question, 'a', "{sv}");
    sd_bus_message_append(question, "{sv}", "label", "s", "bus_session");
    sd_bus_message_open_container(question, 'e', "sv");
    sd_bus_message_append(question, "s", "sensors");
    sd_bus_message_open_container(question, 'v', "as");
    sd_bus_message_open_container(question, 'a', "s");
    std::istringstream words(sensors);
    for (std::string word; std::getline(words, word, ',');) {
        if (word != "-") {
            sd_bus_message_append(question, "s", word.c_str());
        }
    }
    for (int depth = 0; depth < 4; ++depth) {
        sd_bus_message_close_container(question);
    }
    sd_bus_message* const answer = ask(bus, question);
    if (answer == nullptr) {
        std::cout << "error the bus is gone" << std::endl;
        return false;
    }
    if (const sd_bus_error* const error = sd_bus_message_get_error(answer)) {
        print_error(answer, *error);
        return false;
    }
    const char* path = nullptr;
    int fd = -1;
    if (sd_bus_message_read(answer, "oh", &path, &fd) < 0) {
        return false;
    }
    session.path = path;
    session.channel_fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    sd_bus_message_unref(answer);
    sd_bus_message_unref(question);
    return true;
}

unsigned bits_of(const std::string& sensors) {
    unsigned bits = 0;
    const auto add = [&](const char* word, unsigned bit) {
        bits |= sensors.find(word) != std::string::npos ? bit : 0u;
    };
    add("camera", PERCEPT_CAMERA);
    add("microphone", PERCEPT_MICROPHONE);
    add("imu", PERCEPT_IMU);
    return bits;
}

bool read_windows(percept_client* client, int count) {
    for (int i = 0; i < count; ++i) {
        const percept_window* window = nullptr;
        if (percept_next_window(client, 5000, &window) != PERCEPT_OK) {
            std::cout << "no window: " << percept_last_error(client) << std::endl;
            return false;
        }
        percept_release(client, window);
    }
    std::cout << "windows " << count << std::endl;
    return true;
}

/// Windows go on unread; until the channel or the input ends.
void wait_for_end(sd_bus* bus, percept_client* client, const Session& session) {
    for (;;) {
        pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {percept_fd(client), POLLIN, 0}};
        ::poll(ready, 2, -1);
        if (ready[1].revents != 0) {
            const percept_window* window = nullptr;
            const int result = percept_next_window(client, 0, &window);
            if (result < 0) {
                std::cout << "ended, last notice " << percept_last_notice(client).kind << std::endl;
                return;
            }
            if (result == PERCEPT_OK) {
                percept_release(client, window);
            }
        }
        if (ready[0].revents != 0) {
            char byte = 0;
            if (::read(STDIN_FILENO, &byte, 1) != 1) {
                return;
            }
            if (byte == 'c') {
                sd_bus_error error = SD_BUS_ERROR_NULL;
                const int result = sd_bus_call_method(bus, "org.perceptd1", session.path.c_str(),
                                                      "org.perceptd1.Session", "Close", &error, nullptr, nullptr);
                std::cout << (result < 0 ? error.name : "close answered") << std::endl;
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        return 2;
    }
    sd_bus* const bus = perceptd::test::open_bus(argv[1]);
    Session session;
    if (!open_session(bus, argv[2], session)) {
        return 3;
    }
    std::cout << "opened " << session.path << std::endl;
    percept_client* client = nullptr;
    if (percept_connect_fd(session.channel_fd, &client) != PERCEPT_OK) {
        std::cout << "no channel: " << percept_last_error(nullptr) << std::endl;
        return 4;
    }
    const unsigned wanted = bits_of(argv[2]);
    if (wanted != 0 && percept_subscribe(client, wanted, 10'000) != PERCEPT_OK) {
        std::cout << "not subscribed: " << percept_last_error(client) << std::endl;
        return 5;
    }
    if (!read_windows(client, std::atoi(argv[3]))) {
        return 6;
    }
    wait_for_end(bus, client, session);
    percept_close(client);
    sd_bus_close_unref(bus);
}

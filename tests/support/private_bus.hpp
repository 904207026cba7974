// A message bus of its own for a test: dbus-daemon with a policy that allows everything and starts nothing.
// Owns the process and its folder.
// Never touches the machine's buses.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

extern char** environ;

namespace perceptd::test {

class PrivateBus {
public:
    PrivateBus() {
        std::string pattern = (std::filesystem::temp_directory_path() / "perceptd-bus-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) {
            throw std::runtime_error("mkdtemp failed");
        }
        folder_ = pattern;
        std::ofstream(folder_ + "/bus.conf")
            << "<busconfig><type>session</type><listen>" << address()
            << "</listen><auth>EXTERNAL</auth><policy context=\"default\">"
               "<allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/>"
               "<allow own=\"*\"/></policy></busconfig>";
        const std::string config = "--config-file=" + folder_ + "/bus.conf";
        const char* arguments[] = {"dbus-daemon", config.c_str(), "--nofork", "--nopidfile", nullptr};
        if (::posix_spawnp(&pid_, "dbus-daemon", nullptr, nullptr, const_cast<char**>(arguments), environ) != 0) {
            throw std::runtime_error("dbus-daemon is missing: install dbus");
        }
        for (int i = 0; i < 1000 && !accepts(); ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    ~PrivateBus() {
        stop();
        std::filesystem::remove_all(folder_);
    }
    PrivateBus(const PrivateBus&) = delete;
    PrivateBus& operator=(const PrivateBus&) = delete;

    [[nodiscard]] std::string address() const { return "unix:path=" + folder_ + "/socket"; }
    /// The bus dies without a word.
    void stop() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
            pid_ = 0;
        }
    }
    /// The bus hangs, or goes on.
    void send(int signal_number) const { ::kill(pid_, signal_number); }

private:
    /// Whether the bus listens: that its socket exists is not enough.
    [[nodiscard]] bool accepts() const {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        (folder_ + "/socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
        const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
        ::close(fd);
        return connected;
    }

    std::string folder_;
    pid_t pid_ = 0;
};

}  // namespace perceptd::test

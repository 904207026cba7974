// The one exception inside the library: a status of the C interface and a sentence for people.
// Owns the sentence.
// Never crosses the C interface.
#pragma once

#include <percept/percept.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace percept {

class Failure : public std::runtime_error {
public:
    Failure(int status, const std::string& text) : std::runtime_error(text), status_(status) {}
    [[nodiscard]] int status() const noexcept { return status_; }

private:
    int status_;
};

/// What the daemon sent breaks the contract.
[[noreturn]] inline void throw_protocol(const std::string& what) {
    throw Failure(PERCEPT_ERROR_PROTOCOL, "perceptd sent a message that its contract forbids (" + what +
                                              "): check that daemon and libpercept come from the same release");
}

/// A system call failed; errno says why.
[[noreturn]] inline void throw_system(const std::string& what) {
    const int code = errno;
    throw Failure(PERCEPT_ERROR_SYSTEM, what + " failed: " + std::strerror(code));
}

}  // namespace percept

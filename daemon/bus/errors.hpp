// What a caller on the bus sees of an error, and the guard that every bus callback goes through: an exception that
// escapes a handler unwinds through libsystemd's C frames and leaves the connection broken.
// Owns nothing.
// Never lets anything but sdbus::Error out, and that only where the library catches it.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <string>
#include <utility>

#include "base/error.hpp"

namespace perceptd::bus {

/// "org.perceptd1.Error.<Noun>".
std::string error_name(ErrorCode code);
/// The error with limit, use and waiting time in its text, as D-Bus carries it.
sdbus::Error bus_error(const Error& error);
/// The exception being handled as an error of this project. Call inside a catch block only; what is our own fault is
/// logged here.
Error current_error() noexcept;

/// Answers `call` with `error`. After the text comes a{sv} with "limit" (t), "used" (t) and "retry-after-ms" (u) as far
/// as they are known; without any of them the text is all. Never throws: a caller that is gone is nobody's loss.
void reply_error(const sdbus::MethodCall& call, const Error& error) noexcept;
/// Writes to the log that handling `what` failed with the exception being handled.
void log_failure(const char* what) noexcept;

/// Runs the handler of a method call; what it throws becomes the reply.
template <typename Body>
void guard_call(const sdbus::MethodCall& call, Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
    } catch (...) {
        reply_error(call, current_error());
    }
}

/// Runs a property's getter. Throws sdbus::Error, which the library turns into the reply.
template <typename Body>
void guard_property(Body&& body) {
    try {
        std::forward<Body>(body)();
    } catch (...) {
        throw bus_error(current_error());
    }
}

/// Runs the handler of a signal or of a reply, which has nobody to complain to.
template <typename Body>
void guard_event(const char* what, Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
    } catch (...) {
        log_failure(what);
    }
}

}  // namespace perceptd::bus

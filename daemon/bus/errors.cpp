#include "bus/errors.hpp"

#include <exception>
#include <map>

#include "base/log.hpp"

namespace perceptd::bus {
namespace {

std::map<std::string, sdbus::Variant> details_of(const Error& error) {
    std::map<std::string, sdbus::Variant> details;
    if (error.limit) {
        details.emplace("limit", *error.limit);
    }
    if (error.used) {
        details.emplace("used", *error.used);
    }
    if (error.retry_after_ms) {
        details.emplace("retry-after-ms", *error.retry_after_ms);
    }
    return details;
}

}  // namespace

std::string error_name(ErrorCode code) {
    return "org.perceptd1.Error." + std::string(noun_of(code));
}

sdbus::Error bus_error(const Error& error) {
    std::string numbers;
    const auto add = [&numbers](const std::string& text) { numbers += (numbers.empty() ? "" : ", ") + text; };
    if (error.limit) {
        add("limit " + std::to_string(*error.limit));
    }
    if (error.used) {
        add("used " + std::to_string(*error.used));
    }
    if (error.retry_after_ms) {
        add("retry after " + std::to_string(*error.retry_after_ms) + " ms");
    }
    return {error_name(error.code()), numbers.empty() ? error.what() : error.what() + (" (" + numbers + ")")};
}

Error current_error() noexcept {
    try {
        throw;
    } catch (const Error& error) {
        return error;
    } catch (const std::exception& error) {
        log_failure("a request");
        return Error(ErrorCode::Internal,
                     std::string("the daemon failed: ") + error.what() + "; the journal of perceptd says more");
    } catch (...) {
        log_failure("a request");
        return Error(ErrorCode::Internal, "the daemon failed for an unknown reason; the journal of perceptd says more");
    }
}

void reply_error(const sdbus::MethodCall& call, const Error& error) noexcept {
    guard_event("sending an error", [&] {
        sdbus::MethodReply reply = call.createErrorReply(bus_error(error));
        if (const auto details = details_of(error); !details.empty()) {
            reply << details;
        }
        reply.send();
    });
}

void log_failure(const char* what) noexcept {
    const auto write = [what](const char* why) { log::error("bus", std::string(what) + " failed: " + why); };
    try {
        throw;
    } catch (const std::exception& error) {
        write(error.what());
    } catch (...) {
        write("unknown exception");
    }
}

}  // namespace perceptd::bus

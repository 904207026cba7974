#include "base/error.hpp"

#include <cerrno>
#include <system_error>

namespace perceptd {

std::string_view noun_of(ErrorCode code) noexcept {
    switch (code) {
        case ErrorCode::Internal: return "Internal";
        case ErrorCode::InvalidArgument: return "InvalidArgument";
        case ErrorCode::NotFound: return "NotFound";
        case ErrorCode::NotAuthorized: return "NotAuthorized";
        case ErrorCode::AuthorityUnavailable: return "AuthorityUnavailable";
        case ErrorCode::QuotaExceeded: return "QuotaExceeded";
        case ErrorCode::Busy: return "Busy";
        case ErrorCode::Unsupported: return "Unsupported";
        case ErrorCode::VersionMismatch: return "VersionMismatch";
        case ErrorCode::ProtocolViolation: return "ProtocolViolation";
        case ErrorCode::SensorUnavailable: return "SensorUnavailable";
        case ErrorCode::InvalidConfiguration: return "InvalidConfiguration";
    }
    return "Internal";
}

void throw_errno(std::string_view operation, std::string_view path) {
    const int error = errno;
    std::string what(operation);
    if (!path.empty()) {
        what.append(": ").append(path);
    }
    throw std::system_error(error, std::generic_category(), what);
}

}  // namespace perceptd

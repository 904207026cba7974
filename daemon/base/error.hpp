// Errors of the control plane: a code that maps 1:1 to a D-Bus error name and a channel error code,
// and a text that says what is wrong and what to do next. Thrown on the main thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace perceptd {

enum class ErrorCode : std::uint8_t {
    Internal = 1,
    InvalidArgument,
    NotFound,
    NotAuthorized,
    AuthorityUnavailable,  ///< polkit does not answer; everything is denied
    QuotaExceeded,
    Busy,
    Unsupported,
    VersionMismatch,
    ProtocolViolation,
    SensorUnavailable,
    InvalidConfiguration,
};

/// The noun of `code` as used in `org.perceptd1.Error.<Noun>`.
std::string_view noun_of(ErrorCode code) noexcept;

/// An error with what a caller needs to mend it. `limit`, `used` and `retry_after_ms` are set where they apply.
class Error : public std::runtime_error {
public:
    Error(ErrorCode code, const std::string& reason) : std::runtime_error(reason), code_(code) {}

    [[nodiscard]] ErrorCode code() const noexcept { return code_; }

    std::optional<std::uint64_t> limit;
    std::optional<std::uint64_t> used;
    std::optional<std::uint32_t> retry_after_ms;

private:
    ErrorCode code_;
};

/// Throws std::system_error for the current errno; the text is "operation: path: reason".
[[noreturn]] void throw_errno(std::string_view operation, std::string_view path = {});

}  // namespace perceptd

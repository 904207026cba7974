// One owned file descriptor. Owns it from birth to death; never copies, never stores a borrowed one.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/error.hpp"

namespace perceptd {

/// Move-only owner of a descriptor (-1 = none). Thread-bound; destruction closes.
class [[nodiscard]] UniqueFd {
public:
    UniqueFd() noexcept = default;
    explicit UniqueFd(int fd) noexcept : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other) {
            reset(std::exchange(other.fd_, -1));
        }
        return *this;
    }
    UniqueFd(const UniqueFd&) = delete;
    UniqueFd& operator=(const UniqueFd&) = delete;
    ~UniqueFd() { reset(); }

    [[nodiscard]] int borrow() const noexcept { return fd_; }
    [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

    void reset(int fd = -1) noexcept {
        const int old = std::exchange(fd_, fd);
        if (old >= 0) {
            ::close(old);
        }
    }

    /// A second descriptor of the same open file, CLOEXEC and >= 3. Throws std::system_error.
    [[nodiscard]] UniqueFd duplicate() const {
        const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 3);
        if (fd < 0) {
            throw_errno("fcntl(F_DUPFD_CLOEXEC)");
        }
        return UniqueFd(fd);
    }

private:
    int fd_ = -1;
};

}  // namespace perceptd

// A scope in which the CPU may touch a dma-buf: DMA_BUF_IOCTL_SYNC START and END around it, with EINTR and EAGAIN
// retried. On a memfd it does nothing. START waits for the buffer's fences: never on the side that must signal them.
#pragma once

#include <cstdint>

namespace perceptd::arena {

enum class Touch : std::uint8_t { Read, Write, ReadWrite };

/// Thread-bound, borrows `buffer_fd`. Throws std::system_error from the constructor when the kernel refuses.
class CpuAccess {
public:
    CpuAccess(int buffer_fd, Touch touch);
    ~CpuAccess();
    CpuAccess(const CpuAccess&) = delete;
    CpuAccess& operator=(const CpuAccess&) = delete;

private:
    int buffer_fd_;
    std::uint64_t flags_;
};

}  // namespace perceptd::arena

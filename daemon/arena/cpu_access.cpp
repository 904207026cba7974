#include "arena/cpu_access.hpp"

#include <linux/dma-buf.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "base/error.hpp"

namespace perceptd::arena {
namespace {

int sync(int fd, std::uint64_t flags) noexcept {
    dma_buf_sync request{flags};
    int result = 0;
    do {
        result = ::ioctl(fd, DMA_BUF_IOCTL_SYNC, &request);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    return result;
}

std::uint64_t flags_of(Touch touch) noexcept {
    switch (touch) {
        case Touch::Read: return DMA_BUF_SYNC_READ;
        case Touch::Write: return DMA_BUF_SYNC_WRITE;
        case Touch::ReadWrite: return DMA_BUF_SYNC_RW;
    }
    return DMA_BUF_SYNC_RW;
}

}  // namespace

CpuAccess::CpuAccess(int buffer_fd, Touch touch) : buffer_fd_(buffer_fd), flags_(flags_of(touch)) {
    if (sync(buffer_fd_, DMA_BUF_SYNC_START | flags_) != 0) {
        if (errno != ENOTTY) {
            throw_errno("ioctl(DMA_BUF_IOCTL_SYNC, START)");
        }
        buffer_fd_ = -1;  // a memfd: coherent by nature
    }
}

CpuAccess::~CpuAccess() {
    if (buffer_fd_ >= 0) {
        sync(buffer_fd_, DMA_BUF_SYNC_END | flags_);
    }
}

}  // namespace perceptd::arena

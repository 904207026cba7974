#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <exception>

#include "arena/heaps.hpp"
#include "base/error.hpp"

namespace perceptd::arena {
namespace {

class DmaHeapBuffer final : public Buffer {
public:
    DmaHeapBuffer(const std::string& device, std::size_t size_bytes, const std::string& label) {
        const UniqueFd heap(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
        if (!heap) {
            throw_errno("open", device);
        }
        dma_heap_allocation_data request{};
        request.len = size_bytes;
        request.fd_flags = O_RDONLY | O_CLOEXEC;
        if (::ioctl(heap.borrow(), DMA_HEAP_IOCTL_ALLOC, &request) != 0) {
            throw_errno("ioctl(DMA_HEAP_IOCTL_ALLOC)", device);
        }
        buffer_.reset(static_cast<int>(request.fd));
        // Only a name in debugfs: old kernels without it still work.
        static_cast<void>(::ioctl(buffer_.borrow(), DMA_BUF_SET_NAME_B, ("perceptd:" + label).c_str()));
        mapping_ = MappedRegion(buffer_.borrow(), size_bytes, MapAccess::Read);
    }

    [[nodiscard]] int shared_fd() const noexcept override { return buffer_.borrow(); }
    [[nodiscard]] MappedRegion& mapping() noexcept override { return mapping_; }
    [[nodiscard]] UniqueFd provider_fd() const override { return UniqueFd(); }
    void seal() override {}

private:
    UniqueFd buffer_;
    MappedRegion mapping_;
};

}  // namespace

std::string DmaHeap::probe(Writer writer) const {
    if (writer != Writer::Device) {
        return "filled by a process, and memory of a dma-heap that a process may write cannot be made read-only for "
               "clients";
    }
    try {
        DmaHeapBuffer(device_, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), "probe");
        return {};
    } catch (const std::exception& error) {
        return error.what();
    }
}

std::unique_ptr<Buffer> DmaHeap::allocate(std::size_t size_bytes, Writer writer, const std::string& label) const {
    if (const std::string reason = writer == Writer::Device ? std::string() : probe(writer); !reason.empty()) {
        throw Error(ErrorCode::InvalidArgument, name() + ": " + reason);
    }
    return std::make_unique<DmaHeapBuffer>(device_, size_bytes, label);
}

}  // namespace perceptd::arena

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <exception>

#include "arena/heaps.hpp"
#include "arena/memfd_buffer.hpp"
#include "base/error.hpp"

namespace perceptd::arena {
namespace {

class UdmabufBuffer final : public MemfdBuffer {
public:
    UdmabufBuffer(const std::string& device, std::size_t size_bytes, Writer writer, const std::string& label)
        : MemfdBuffer(size_bytes, writer, label) {
        const UniqueFd udmabuf(::open(device.c_str(), O_RDWR | O_CLOEXEC));
        if (!udmabuf) {
            throw_errno("open", device);
        }
        udmabuf_create request{};
        request.memfd = static_cast<std::uint32_t>(writable_fd());
        request.flags = UDMABUF_FLAGS_CLOEXEC;
        request.size = size_bytes;
        // Before seal(): the driver refuses a memfd whose future writes are sealed.
        dma_buf_.reset(::ioctl(udmabuf.borrow(), UDMABUF_CREATE, &request));
        if (!dma_buf_) {
            throw_errno("ioctl(UDMABUF_CREATE)", device);
        }
    }

private:
    UniqueFd dma_buf_;
};

}  // namespace

std::string UdmabufHeap::probe(Writer writer) const {
    try {
        UdmabufBuffer(device_, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), writer, "probe").seal();
        return {};
    } catch (const std::exception& error) {
        return error.what();
    }
}

std::unique_ptr<Buffer> UdmabufHeap::allocate(std::size_t size_bytes, Writer writer, const std::string& label) const {
    return std::make_unique<UdmabufBuffer>(device_, size_bytes, writer, label);
}

}  // namespace perceptd::arena

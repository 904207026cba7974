#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <exception>

#include "arena/heaps.hpp"
#include "arena/memfd_buffer.hpp"
#include "base/error.hpp"

namespace perceptd::arena {
namespace {

UniqueFd make_memfd(std::size_t size_bytes, const std::string& label) {
    const std::string name = "perceptd:" + label;
    UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) {
        throw_errno("memfd_create", name);
    }
    if (::ftruncate(fd.borrow(), static_cast<off_t>(size_bytes)) != 0) {
        throw_errno("ftruncate", name);
    }
    if (::fcntl(fd.borrow(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        throw_errno("fcntl(F_ADD_SEALS)", name);
    }
    return fd;
}

}  // namespace

MemfdBuffer::MemfdBuffer(std::size_t size_bytes, Writer writer, const std::string& label)
    : writer_(writer),
      writable_(make_memfd(size_bytes, label)),
      mapping_(writable_.borrow(), size_bytes, MapAccess::ReadWrite) {
    // A second open file: its access mode is its own, and the seal below makes a writable reopen useless.
    const std::string path = "/proc/self/fd/" + std::to_string(writable_.borrow());
    read_only_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!read_only_) {
        throw_errno("open", path);
    }
}

UniqueFd MemfdBuffer::provider_fd() const {
    if (writer_ != Writer::Provider || !writable_) {
        return UniqueFd();
    }
    return writable_.duplicate();
}

void MemfdBuffer::seal() {
    if (!writable_) {
        return;
    }
    if (::fcntl(writable_.borrow(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
        throw_errno("fcntl(F_ADD_SEALS, F_SEAL_FUTURE_WRITE)");
    }
    writable_.reset();
}

std::string MemfdHeap::probe(Writer writer) const {
    try {
        MemfdBuffer(4096, writer, "probe").seal();
        return {};
    } catch (const std::exception& error) {
        return error.what();
    }
}

std::unique_ptr<Buffer> MemfdHeap::allocate(std::size_t size_bytes, Writer writer, const std::string& label) const {
    return std::make_unique<MemfdBuffer>(size_bytes, writer, label);
}

}  // namespace perceptd::arena

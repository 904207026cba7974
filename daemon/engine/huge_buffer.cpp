#include "engine/huge_buffer.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "base/error.hpp"

namespace perceptd::engine {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kPageBytes = 4096;

}  // namespace

HugeBuffer::HugeBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
    if (size_bytes == 0) {
        return;
    }
    mapping_bytes_ = (size_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes + kHugePageBytes;
    void* const mapping =
        ::mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        throw_errno("mmap", std::to_string(mapping_bytes_) + " bytes of anonymous memory");
    }
    mapping_ = static_cast<std::byte*>(mapping);
    const auto address = reinterpret_cast<std::uintptr_t>(mapping);
    data_ = mapping_ + ((address + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes - address);
    // Refused where transparent huge pages are compiled out or off: then 4 KiB pages serve.
    (void)::madvise(data_, mapping_bytes_ - static_cast<std::size_t>(data_ - mapping_), MADV_HUGEPAGE);
}

HugeBuffer::~HugeBuffer() {
    if (mapping_ != nullptr) {
        ::munmap(mapping_, mapping_bytes_);
    }
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_bytes_, other.mapping_bytes_);
    return *this;
}

void HugeBuffer::prefault() const noexcept {
    for (std::size_t at = 0; at < size_bytes_; at += kPageBytes) {
        *static_cast<volatile std::byte*>(data_ + at) = std::byte{0};
    }
}

}  // namespace perceptd::engine

#include "base/mapped_region.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.hpp"

namespace perceptd {

MappedRegion::MappedRegion(int fd, std::size_t size_bytes, MapAccess access) : size_bytes_(size_bytes) {
    const int protection = access == MapAccess::Read ? PROT_READ : PROT_READ | PROT_WRITE;
    void* const address = ::mmap(nullptr, size_bytes, protection, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        throw_errno("mmap");
    }
    data_ = static_cast<std::byte*>(address);
}

MappedRegion& MappedRegion::operator=(MappedRegion&& other) noexcept {
    if (this != &other) {
        unmap();
        data_ = std::exchange(other.data_, nullptr);
        size_bytes_ = std::exchange(other.size_bytes_, 0);
    }
    return *this;
}

void MappedRegion::prefault() const noexcept {
    const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    for (std::size_t offset = 0; offset < size_bytes_; offset += page_bytes) {
        static_cast<void>(*static_cast<const volatile std::byte*>(data_ + offset));
    }
}

void MappedRegion::unmap() noexcept {
    if (data_ != nullptr) {
        ::munmap(data_, size_bytes_);
        data_ = nullptr;
    }
}

}  // namespace perceptd

// One owned memory mapping of a descriptor. Owns the mapping, never the descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace perceptd {

enum class MapAccess : std::uint8_t { Read, ReadWrite };

/// Move-only owner of an mmap(MAP_SHARED) of [0, size_bytes). Thread-bound; set-up only (a system call).
class [[nodiscard]] MappedRegion {
public:
    MappedRegion() noexcept = default;
    /// Throws std::system_error when the kernel refuses the mapping.
    MappedRegion(int fd, std::size_t size_bytes, MapAccess access);
    MappedRegion(MappedRegion&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
    MappedRegion& operator=(MappedRegion&& other) noexcept;
    MappedRegion(const MappedRegion&) = delete;
    MappedRegion& operator=(const MappedRegion&) = delete;
    ~MappedRegion() { unmap(); }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_bytes_}; }

    /// Touches every page (read) so that no page fault meets a real-time thread later.
    void prefault() const noexcept;

private:
    void unmap() noexcept;

    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
};

}  // namespace perceptd

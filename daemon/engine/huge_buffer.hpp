// Anonymous memory on 2 MiB pages where the kernel grants them: a pass walks hundreds of megabytes of weights, and with
// 4 KiB pages a part of the time goes into translation. Owns its mapping. Never swaps pages in on a hot path:
// prefault() touches all of it.
#pragma once

#include <cstddef>
#include <span>

namespace perceptd::engine {

/// Move-only. Set-up only.
class HugeBuffer {
public:
    HugeBuffer() noexcept = default;
    /// Zeroed memory, aligned to 2 MiB. Throws std::system_error when there is none.
    explicit HugeBuffer(std::size_t size_bytes);
    ~HugeBuffer();
    HugeBuffer(HugeBuffer&& other) noexcept;
    HugeBuffer& operator=(HugeBuffer&& other) noexcept;

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_bytes_}; }
    /// Touches every page.
    void prefault() const noexcept;

private:
    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
    std::byte* mapping_ = nullptr;
    std::size_t mapping_bytes_ = 0;
};

}  // namespace perceptd::engine

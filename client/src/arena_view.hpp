// The client's read-only view of one of the daemon's arenas: slots and generations.
// Owns the two mappings and the slots descriptor.
// Never writes, and never trusts a size that the descriptors themselves do not confirm.
#pragma once

#include <perceptd/v1/channel.pb.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "unique_fd.hpp"

namespace percept {

/// A read-only mapping of a whole number of bytes from the start of a descriptor.
class Mapping {
public:
    Mapping(int fd, std::size_t size_bytes);  ///< Throws Failure.
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }

private:
    const std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
};

class ArenaView {
public:
    /// Throws Failure when description, descriptors and header page do not agree.
    ArenaView(const perceptd::v1::ArenaDescription& description, UniqueFd slots, UniqueFd header);

    [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
    [[nodiscard]] perceptd::v1::BlockKind kind() const noexcept { return kind_; }

    /// "memfd", or the exporter of the dma-buf.
    [[nodiscard]] const std::string& heap() const noexcept { return heap_; }

    /// The bytes that the reference names. Throws Failure when they do not lie in one slot.
    [[nodiscard]] std::span<const std::byte> bytes(const perceptd::v1::BlockRef& block) const;

    /// The slot's generation now; what was read before this call was read under it or an earlier one.
    [[nodiscard]] std::uint64_t generation(std::uint32_t slot_index) const noexcept;

    /// Brackets CPU reads of a dma-buf; nothing to do for a memfd.
    void begin_read() const noexcept { synchronize(true); }
    void end_read() const noexcept { synchronize(false); }

private:
    void synchronize(bool begin) const noexcept;

    std::uint32_t id_;
    perceptd::v1::BlockKind kind_;
    std::uint32_t slot_count_;
    std::uint64_t slot_stride_bytes_;
    std::uint64_t slot_bytes_;
    UniqueFd slots_fd_;
    std::string heap_;
    Mapping header_;
    Mapping slots_;
};

}  // namespace percept

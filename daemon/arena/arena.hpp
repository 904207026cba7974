// A fixed set of equal slots in one shared buffer. Owns the buffer, the header page and the slots' lease counts for
// life. Never allocates after construction; never waits for a client.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "arena/heap.hpp"
#include "base/mapped_region.hpp"
#include "base/unique_fd.hpp"
#include "percept_layout.h"

namespace perceptd::arena {

class Lease;

/// Names a slot at one moment of its life; what messages and rings carry.
struct SlotRef {
    std::uint32_t slot_index = 0;
    std::uint64_t generation = 0;
    friend bool operator==(const SlotRef&, const SlotRef&) = default;
};

/// A slot is free at lease count 0 and reused only then. Generation: odd while free or written, even while readable.
/// Threads: acquire() from the writer's thread only; leases may be shared and ended on any thread.
/// Real-time: acquire, publish and release are wait-free up to slot_count/64 steps; no allocation, lock or syscall
/// (release writes an eventfd only when the writer announced that it waits).
class Arena {
public:
    struct Options {
        std::string label;             ///< "camera0", shown in /proc
        std::uint32_t slot_count = 0;  ///< 2..PERCEPT_ARENA_SLOTS_MAX
        std::size_t slot_bytes = 0;
        Writer writer = Writer::Daemon;
    };

    /// Throws std::system_error when memory cannot be had, Error(InvalidArgument) for a bad shape.
    Arena(const Heap& heap, const Options& options);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// A writer's lease on a free slot; empty when none is free (count it, go on).
    [[nodiscard]] Lease acquire() noexcept;
    /// Free slots now. Any thread.
    [[nodiscard]] std::uint32_t free_count() const noexcept;
    /// Marks that the writer waits for a slot; the next release makes release_fd() readable. Writer's thread.
    void announce_waiting() noexcept;
    [[nodiscard]] int release_fd() const noexcept { return release_fd_.borrow(); }

    /// The slot's bytes in the daemon's mapping (read-only by convention once published).
    [[nodiscard]] std::span<std::byte> slot(std::uint32_t slot_index) const noexcept;
    /// A lease for a slot whose reference was carried through a ring by Lease::detach(). Takes over that count.
    [[nodiscard]] Lease adopt(SlotRef ref) noexcept;

    void seal() { buffer_->seal(); }
    /// Descriptors for clients (borrowed; duplicate before sending): slots and header, both unwritable.
    [[nodiscard]] int shared_fd() const noexcept { return buffer_->shared_fd(); }
    [[nodiscard]] int header_fd() const noexcept { return header_shared_fd_.borrow(); }
    [[nodiscard]] UniqueFd provider_fd() const { return buffer_->provider_fd(); }

    [[nodiscard]] const std::string& label() const noexcept { return options_.label; }
    [[nodiscard]] const std::string& heap_name() const noexcept { return heap_name_; }
    [[nodiscard]] std::uint32_t slot_count() const noexcept { return options_.slot_count; }
    [[nodiscard]] std::size_t slot_bytes() const noexcept { return options_.slot_bytes; }
    [[nodiscard]] std::size_t slot_stride_bytes() const noexcept { return stride_bytes_; }
    /// st_ino of the slots descriptor: equal in every process that holds this buffer.
    [[nodiscard]] std::uint64_t inode() const noexcept { return inode_; }

private:
    friend class Lease;
    void retain(std::uint32_t slot_index) noexcept;
    void release(std::uint32_t slot_index) noexcept;
    void publish(std::uint32_t slot_index) noexcept;

    Options options_;
    std::string heap_name_;
    std::size_t stride_bytes_ = 0;
    std::uint64_t inode_ = 0;
    std::unique_ptr<Buffer> buffer_;
    UniqueFd header_shared_fd_;
    MappedRegion header_;
    UniqueFd release_fd_;
    std::atomic<bool> writer_waits_{false};
    std::array<std::atomic<std::uint64_t>, PERCEPT_ARENA_SLOTS_MAX / 64> used_mask_{};
    std::array<std::atomic<std::uint32_t>, PERCEPT_ARENA_SLOTS_MAX> lease_count_{};
};

}  // namespace perceptd::arena

// The right to read or write one slot. Ends when destroyed; the slot is reused after its last lease.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "arena/arena.hpp"

namespace perceptd::arena {

/// Move-only. Threads: one lease belongs to one thread at a time; different leases of a slot are independent.
/// Real-time: no allocation, no lock.
class [[nodiscard]] Lease {
public:
    Lease() noexcept = default;
    Lease(Lease&& other) noexcept : arena_(std::exchange(other.arena_, nullptr)), ref_(other.ref_) {}
    Lease& operator=(Lease&& other) noexcept {
        if (this != &other) {
            end();
            arena_ = std::exchange(other.arena_, nullptr);
            ref_ = other.ref_;
        }
        return *this;
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { end(); }

    [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
    [[nodiscard]] SlotRef ref() const noexcept { return ref_; }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return arena_->slot(ref_.slot_index); }
    [[nodiscard]] Arena& arena() const noexcept { return *arena_; }

    /// Makes the slot readable (its generation becomes even). Once, by the writer, after the last write.
    void publish() noexcept {
        arena_->publish(ref_.slot_index);
        ++ref_.generation;
    }
    /// A second lease of the same slot.
    Lease share() const noexcept {
        arena_->retain(ref_.slot_index);
        return Lease(arena_, ref_);
    }
    /// Gives up the object but not the count, so that a SlotRef can travel through a ring to Arena::adopt().
    SlotRef detach() noexcept {
        arena_ = nullptr;
        return ref_;
    }
    void end() noexcept {
        if (Arena* arena = std::exchange(arena_, nullptr)) {
            arena->release(ref_.slot_index);
        }
    }

private:
    friend class Arena;
    Lease(Arena* arena, SlotRef ref) noexcept : arena_(arena), ref_(ref) {}

    Arena* arena_ = nullptr;
    SlotRef ref_;
};

}  // namespace perceptd::arena

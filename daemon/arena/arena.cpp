#include "arena/arena.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <new>

#include "arena/lease.hpp"
#include "arena/memfd_buffer.hpp"
#include "base/contract.hpp"
#include "base/error.hpp"
#include "base/event_fd.hpp"

namespace perceptd::arena {
namespace {

constexpr std::size_t kWordBits = 64;

std::size_t page_rounded(std::size_t size_bytes) {
    const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
}

percept_arena_header& header_at(const MappedRegion& region) noexcept {
    return *std::launder(reinterpret_cast<percept_arena_header*>(region.data()));
}

std::atomic_ref<std::uint64_t> generation(const MappedRegion& region, std::uint32_t slot_index) noexcept {
    return std::atomic_ref<std::uint64_t>(header_at(region).generation[slot_index]);
}

}  // namespace

Arena::Arena(const Heap& heap, const Options& options)
    : options_(options), heap_name_(heap.name()), stride_bytes_(page_rounded(options.slot_bytes)) {
    if (options.slot_count < 2 || options.slot_count > PERCEPT_ARENA_SLOTS_MAX || options.slot_bytes == 0) {
        throw Error(ErrorCode::InvalidArgument,
                    "arena " + options.label + ": needs 2 to 256 slots of at least one byte");
    }
    buffer_ = heap.allocate(stride_bytes_ * options.slot_count, options.writer, options.label);
    struct stat status {};
    if (::fstat(buffer_->shared_fd(), &status) != 0) {
        throw_errno("fstat", options.label);
    }
    inode_ = status.st_ino;

    // The generation table lies in a page of its own: a device-filled buffer is read-only for us too.
    MemfdBuffer header(page_rounded(sizeof(percept_arena_header)), Writer::Daemon, options.label + ".header");
    header.seal();
    header_shared_fd_ = UniqueFd(header.shared_fd() >= 0 ? ::fcntl(header.shared_fd(), F_DUPFD_CLOEXEC, 3) : -1);
    if (!header_shared_fd_) {
        throw_errno("fcntl(F_DUPFD_CLOEXEC)", options.label);
    }
    header_ = std::move(header.mapping());
    percept_arena_header& table = header_at(header_);
    table.magic = PERCEPT_ARENA_MAGIC;
    table.version = PERCEPT_LAYOUT_VERSION;
    table.slot_count = options.slot_count;
    table.slot_stride_bytes = stride_bytes_;
    table.slot_bytes = options.slot_bytes;
    for (std::uint32_t i = 0; i < PERCEPT_ARENA_SLOTS_MAX; ++i) {
        table.generation[i] = 1;
    }
    // Indices past the end are never free.
    for (std::uint32_t i = options.slot_count; i < PERCEPT_ARENA_SLOTS_MAX; ++i) {
        used_mask_[i / kWordBits].fetch_or(std::uint64_t{1} << (i % kWordBits), std::memory_order_relaxed);
    }
    release_fd_ = make_event();
    buffer_->mapping().prefault();
}

Arena::~Arena() {
    PERCEPTD_ASSERT(free_count() == options_.slot_count);
}

Lease Arena::acquire() noexcept {
    for (std::size_t word = 0; word < used_mask_.size(); ++word) {
        const std::uint64_t used = used_mask_[word].load(std::memory_order_acquire);
        if (used == ~std::uint64_t{0}) {
            continue;
        }
        // Only the writer sets bits, so this bit is still clear: no retry is needed.
        const auto bit = static_cast<std::uint32_t>(std::countr_one(used));
        const auto slot_index = static_cast<std::uint32_t>(word * kWordBits) + bit;
        used_mask_[word].fetch_or(std::uint64_t{1} << bit, std::memory_order_acq_rel);
        lease_count_[slot_index].store(1, std::memory_order_relaxed);
        return Lease(this, {slot_index, generation(header_, slot_index).load(std::memory_order_relaxed)});
    }
    return {};
}

std::uint32_t Arena::free_count() const noexcept {
    std::uint32_t count = 0;
    for (const auto& word : used_mask_) {
        count += static_cast<std::uint32_t>(std::popcount(~word.load(std::memory_order_acquire)));
    }
    return count;
}

void Arena::announce_waiting() noexcept {
    writer_waits_.store(true, std::memory_order_seq_cst);
}

std::span<std::byte> Arena::slot(std::uint32_t slot_index) const noexcept {
    PERCEPTD_ASSERT(slot_index < options_.slot_count);
    return buffer_->mapping().bytes().subspan(slot_index * stride_bytes_, options_.slot_bytes);
}

Lease Arena::adopt(SlotRef ref) noexcept {
    PERCEPTD_ASSERT(ref.slot_index < options_.slot_count);
    PERCEPTD_ASSERT(lease_count_[ref.slot_index].load(std::memory_order_relaxed) > 0);
    return Lease(this, ref);
}

void Arena::retain(std::uint32_t slot_index) noexcept {
    const std::uint32_t before = lease_count_[slot_index].fetch_add(1, std::memory_order_relaxed);
    PERCEPTD_ASSERT(before > 0);
}

void Arena::publish(std::uint32_t slot_index) noexcept {
    generation(header_, slot_index).fetch_add(1, std::memory_order_release);
}

void Arena::release(std::uint32_t slot_index) noexcept {
    const std::uint32_t before = lease_count_[slot_index].fetch_sub(1, std::memory_order_acq_rel);
    PERCEPTD_ASSERT(before > 0);
    if (before != 1) {
        return;
    }
    // Odd again before the slot can be acquired: a client that still looks sees that its right has ended.
    auto current = generation(header_, slot_index);
    if ((current.load(std::memory_order_relaxed) & 1) == 0) {
        current.fetch_add(1, std::memory_order_release);
    }
    used_mask_[slot_index / kWordBits].fetch_and(~(std::uint64_t{1} << (slot_index % kWordBits)),
                                                 std::memory_order_seq_cst);
    if (writer_waits_.exchange(false, std::memory_order_seq_cst)) {
        signal_event(release_fd_.borrow());
    }
}

}  // namespace perceptd::arena

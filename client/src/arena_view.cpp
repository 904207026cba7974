#include "arena_view.hpp"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string_view>

#include "failure.hpp"

namespace percept {
namespace {

namespace v1 = perceptd::v1;

constexpr std::uint64_t kArenaBytesMax = std::uint64_t{1} << 34;
constexpr std::string_view kMemfd = "memfd";

std::uint64_t page_bytes() {
    return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Checks the numbers before anything is mapped; gives back the total size.
std::size_t checked_size_bytes(const v1::ArenaDescription& description) {
    const std::string name = "arena " + std::to_string(description.id());
    if (description.slot_count() == 0 || description.slot_count() > PERCEPT_ARENA_SLOTS_MAX) {
        throw_protocol(name + " has " + std::to_string(description.slot_count()) + " slots");
    }
    const std::uint64_t stride_bytes = description.slot_stride_bytes();
    if (stride_bytes == 0 || stride_bytes % page_bytes() != 0 ||
        stride_bytes > kArenaBytesMax / description.slot_count() || description.slot_bytes() == 0 ||
        description.slot_bytes() > stride_bytes) {
        throw_protocol(name + " has slots of " + std::to_string(description.slot_bytes()) + " bytes every " +
                       std::to_string(stride_bytes));
    }
    return static_cast<std::size_t>(stride_bytes * description.slot_count());
}

/// A mapping past the end of a buffer, or of one that may shrink, would end in SIGBUS.
void check_buffer(int fd, std::uint64_t size_bytes, bool must_be_memfd, const std::string& name) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals >= 0 ? (seals & F_SEAL_SHRINK) == 0 : must_be_memfd) {
        throw_protocol(name + " is not sealed against shrinking");
    }
    const off_t end = ::lseek(fd, 0, SEEK_END);
    if (end < 0 || static_cast<std::uint64_t>(end) < size_bytes) {
        throw_protocol(name + " is smaller than announced");
    }
}

/// The exporter's name from the kernel; empty when the descriptor is no dma-buf.
std::string dma_buf_exporter(int fd) {
    std::ifstream lines("/proc/self/fdinfo/" + std::to_string(fd));
    constexpr std::string_view kKey = "exp_name:\t";
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(kKey)) {
            return line.substr(kKey.size());
        }
    }
    return {};
}

std::string heap_of(int fd, const std::string& name) {
    if (::fcntl(fd, F_GET_SEALS) >= 0) {
        return std::string(kMemfd);
    }
    std::string exporter = dma_buf_exporter(fd);
    if (exporter.empty()) {
        throw_protocol(name + " is neither a memfd nor a dma-buf");
    }
    return exporter;
}

UniqueFd checked_slots(const v1::ArenaDescription& description, UniqueFd slots) {
    const std::string name = "arena " + std::to_string(description.id());
    struct stat status {};
    if (::fstat(slots.borrow(), &status) != 0 || status.st_ino != description.inode()) {
        throw_protocol(name + " came with another descriptor than announced");
    }
    check_buffer(slots.borrow(), checked_size_bytes(description), false, name);
    return slots;
}

const UniqueFd& checked_header(const v1::ArenaDescription& description, const UniqueFd& header) {
    check_buffer(header.borrow(), sizeof(percept_arena_header), true,
                 "the header of arena " + std::to_string(description.id()));
    return header;
}

}  // namespace

Mapping::Mapping(int fd, std::size_t size_bytes) : size_bytes_(size_bytes) {
    void* const address = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        throw_system("mapping " + std::to_string(size_bytes) + " bytes of perceptd's memory");
    }
    data_ = static_cast<const std::byte*>(address);
}

Mapping::~Mapping() {
    ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

ArenaView::ArenaView(const v1::ArenaDescription& description, UniqueFd slots, UniqueFd header)
    : id_(description.id()),
      kind_(description.kind()),
      slot_count_(description.slot_count()),
      slot_stride_bytes_(description.slot_stride_bytes()),
      slot_bytes_(description.slot_bytes()),
      slots_fd_(checked_slots(description, std::move(slots))),
      heap_(heap_of(slots_fd_.borrow(), "arena " + std::to_string(id_))),
      header_(checked_header(description, header).borrow(), sizeof(percept_arena_header)),
      slots_(slots_fd_.borrow(), checked_size_bytes(description)) {
    percept_arena_header table{};
    std::memcpy(&table, header_.data(), offsetof(percept_arena_header, generation));
    if (table.magic != PERCEPT_ARENA_MAGIC || table.version != PERCEPT_LAYOUT_VERSION) {
        throw_protocol("arena " + std::to_string(id_) + " has another memory layout");
    }
    if (table.slot_count != slot_count_ || table.slot_stride_bytes != slot_stride_bytes_ ||
        table.slot_bytes != slot_bytes_) {
        throw_protocol("arena " + std::to_string(id_) + " differs from its header page");
    }
}

std::span<const std::byte> ArenaView::bytes(const v1::BlockRef& block) const {
    if (block.slot_index() >= slot_count_ || block.offset_bytes() > slot_bytes_ ||
        block.size_bytes() > slot_bytes_ - block.offset_bytes()) {
        throw_protocol("a block outside arena " + std::to_string(id_));
    }
    if (block.generation() % 2 != 0) {
        throw_protocol("a block that is still being written");
    }
    return {slots_.data() + block.slot_index() * slot_stride_bytes_ + block.offset_bytes(),
            static_cast<std::size_t>(block.size_bytes())};
}

std::uint64_t ArenaView::generation(std::uint32_t slot_index) const noexcept {
    // The reads before must be over when the generation is read: the reader's side of a sequence lock.
    std::atomic_thread_fence(std::memory_order_acquire);
    const auto* const table = reinterpret_cast<const percept_arena_header*>(header_.data());
    return __atomic_load_n(&table->generation[slot_index], __ATOMIC_ACQUIRE);
}

void ArenaView::synchronize(bool begin) const noexcept {
    if (heap_ == kMemfd) {
        return;
    }
    dma_buf_sync request{};
    request.flags = DMA_BUF_SYNC_READ | (begin ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END);
    while (::ioctl(slots_fd_.borrow(), DMA_BUF_IOCTL_SYNC, &request) != 0 && (errno == EINTR || errno == EAGAIN)) {
    }
}

}  // namespace percept

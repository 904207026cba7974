// Preloaded into a process under test: counts the bytes that copying functions move out of or into one shared mapping,
// found by its name in /proc/self/maps. Owns a small file of counters, mapped and therefore current at every moment,
// even after kill -9. Never allocates and never calls the functions it stands in for.
// It sees calls. A copy that the compiler made of loads and stores in place is not seen.

// Both names of each function are defined here; with this macro the headers would make one of the two.
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "copy_counters.h"

namespace {

constexpr std::size_t kRangesMax = 16;

struct Range {
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
};

Range ranges[kRangesMax];
copy_counters unread_counters;  // until the file is there
std::atomic<copy_counters*> counters{&unread_counters};
const char* wanted_name = nullptr;    // as in /proc/self/maps
const char* filler_thread = nullptr;  // the thread that may write into the mapping

void add(std::uint64_t& counter, std::uint64_t count) {
    __atomic_fetch_add(&counter, count, __ATOMIC_RELAXED);
}

bool overlaps(const void* address, std::size_t size_bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    for (const Range& range : ranges) {
        const std::uintptr_t range_end = range.end.load(std::memory_order_relaxed);
        if (range_end == 0) {
            return false;
        }
        if (begin < range_end && begin + size_bytes > range.begin.load(std::memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

bool same(const char* a, const char* b, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
        if (a[i] != b[i]) {
            return false;
        }
    }
    return true;
}

std::size_t length(const char* text) {
    std::size_t size = 0;
    while (text[size] != '\0') {
        ++size;
    }
    return size;
}

bool on_filler_thread() {
    char name[17] = {};
    ::prctl(PR_GET_NAME, name);
    return filler_thread != nullptr && length(name) == length(filler_thread) && same(name, filler_thread, length(name));
}

void note_copy(const void* to, const void* from, std::size_t size_bytes) {
    if (overlaps(from, size_bytes)) {
        add(counters.load()->copied_out_bytes, size_bytes);
    }
    if (overlaps(to, size_bytes)) {
        add(on_filler_thread() ? counters.load()->filled_bytes : counters.load()->copied_in_bytes, size_bytes);
    }
}

void note_sent(const void* from, ssize_t size_bytes) {
    if (size_bytes > 0 && overlaps(from, static_cast<std::size_t>(size_bytes))) {
        add(counters.load()->sent_bytes, static_cast<std::uint64_t>(size_bytes));
    }
}

void note_received(const void* to, ssize_t size_bytes) {
    if (size_bytes > 0 && overlaps(to, static_cast<std::size_t>(size_bytes))) {
        add(counters.load()->received_bytes, static_cast<std::uint64_t>(size_bytes));
    }
}

template <typename Note>
void note_parts(const iovec* parts, std::size_t count, ssize_t total, Note note) {
    for (std::size_t i = 0; i < count && total > 0; ++i) {
        const auto part =
            static_cast<ssize_t>(parts[i].iov_len) < total ? static_cast<ssize_t>(parts[i].iov_len) : total;
        note(parts[i].iov_base, part);
        total -= part;
    }
}

std::uintptr_t hexadecimal(const char*& text) {
    std::uintptr_t value = 0;
    for (;; ++text) {
        const char c = *text;
        if (c >= '0' && c <= '9') {
            value = value * 16 + static_cast<std::uintptr_t>(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + static_cast<std::uintptr_t>(c - 'a' + 10);
        } else {
            return value;
        }
    }
}

/// One line of maps: takes its range when the name at its end is the wanted one.
void take_line(const char* line, std::size_t size, std::size_t& found, std::uint64_t& mapped_bytes) {
    const std::size_t name_size = length(wanted_name);
    if (size < name_size || !same(line + size - name_size, wanted_name, name_size) || found == kRangesMax) {
        return;
    }
    const char* text = line;
    const std::uintptr_t begin = hexadecimal(text);
    ++text;
    const std::uintptr_t end = hexadecimal(text);
    ranges[found].begin.store(begin, std::memory_order_relaxed);
    ranges[found].end.store(end, std::memory_order_relaxed);
    ++found;
    mapped_bytes += end - begin;
}

void look_for_ranges() {
    if (wanted_name == nullptr) {
        return;
    }
    const long fd = ::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    std::size_t found = 0;
    std::uint64_t mapped_bytes = 0;
    char line[512];
    std::size_t size = 0;
    char buffer[4096];
    for (long got = 0; (got = ::syscall(SYS_read, fd, buffer, sizeof(buffer))) > 0;) {
        for (long i = 0; i < got; ++i) {
            if (buffer[i] == '\n') {
                take_line(line, size, found, mapped_bytes);
                size = 0;
            } else if (size < sizeof(line)) {
                line[size++] = buffer[i];
            }
        }
    }
    for (; found < kRangesMax; ++found) {
        ranges[found].end.store(0, std::memory_order_relaxed);
    }
    ::syscall(SYS_close, fd);
    if (mapped_bytes > __atomic_load_n(&counters.load()->mapped_bytes, __ATOMIC_RELAXED)) {
        __atomic_store_n(&counters.load()->mapped_bytes, mapped_bytes, __ATOMIC_RELAXED);
    }
}

__attribute__((constructor)) void begin() {
    wanted_name = std::getenv("COPY_AUDIT_MAPPING");
    filler_thread = std::getenv("COPY_AUDIT_FILLER");
    const char* path = std::getenv("COPY_AUDIT_FILE");
    if (wanted_name == nullptr || path == nullptr) {
        return;
    }
    const long fd = ::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ::syscall(SYS_ftruncate, fd, sizeof(copy_counters)) != 0) {
        return;
    }
    const long address = ::syscall(SYS_mmap, nullptr, sizeof(copy_counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::syscall(SYS_close, fd);
    if (address > 0) {
        counters.store(reinterpret_cast<copy_counters*>(address));
        counters.load()->magic = COPY_COUNTERS_MAGIC;
    }
}

void move_forward(void* to, const void* from, std::size_t size_bytes) {
#if defined(__x86_64__)
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size_bytes) : : "memory");
#else
    for (std::size_t i = 0; i < size_bytes; ++i) {
        static_cast<volatile char*>(to)[i] = static_cast<const char*>(from)[i];
    }
#endif
}

void* moved(void* to, const void* from, std::size_t size_bytes) {
    note_copy(to, from, size_bytes);
    if (static_cast<char*>(to) <= static_cast<const char*>(from) ||
        static_cast<char*>(to) >= static_cast<const char*>(from) + size_bytes) {
        move_forward(to, from, size_bytes);
        return to;
    }
    for (std::size_t i = size_bytes; i-- > 0;) {
        static_cast<volatile char*>(to)[i] = static_cast<const char*>(from)[i];
    }
    return to;
}

void* mapped(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) {
    const long result = ::syscall(SYS_mmap, address, size, protection, flags, fd, offset);
    if (result != -1 && fd >= 0 && (flags & MAP_SHARED) != 0) {
        look_for_ranges();
    }
    return reinterpret_cast<void*>(result);
}

}  // namespace

extern "C" {

void* memcpy(void* to, const void* from, std::size_t size) noexcept {
    return moved(to, from, size);
}
void* memmove(void* to, const void* from, std::size_t size) noexcept {
    return moved(to, from, size);
}
void* mempcpy(void* to, const void* from, std::size_t size) noexcept {
    return static_cast<char*>(moved(to, from, size)) + size;
}
void* __memcpy_chk(void* to, const void* from, std::size_t size, std::size_t) noexcept {
    return moved(to, from, size);
}
void* __memmove_chk(void* to, const void* from, std::size_t size, std::size_t) noexcept {
    return moved(to, from, size);
}

void* mmap(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) noexcept {
    return mapped(address, size, protection, flags, fd, offset);
}
void* mmap64(void* address, std::size_t size, int protection, int flags, int fd, off64_t offset) noexcept {
    return mapped(address, size, protection, flags, fd, offset);
}
int munmap(void* address, std::size_t size) noexcept {
    const bool was_wanted = overlaps(address, size);
    const auto result = static_cast<int>(::syscall(SYS_munmap, address, size));
    if (was_wanted) {
        look_for_ranges();
    }
    return result;
}

ssize_t write(int fd, const void* from, std::size_t size) {
    const ssize_t result = ::syscall(SYS_write, fd, from, size);
    note_sent(from, result);
    return result;
}
ssize_t pwrite(int fd, const void* from, std::size_t size, off_t offset) {
    const ssize_t result = ::syscall(SYS_pwrite64, fd, from, size, offset);
    note_sent(from, result);
    return result;
}
ssize_t pwrite64(int fd, const void* from, std::size_t size, off64_t offset) {
    return pwrite(fd, from, size, offset);
}
ssize_t writev(int fd, const iovec* parts, int count) {
    const ssize_t result = ::syscall(SYS_writev, fd, parts, count);
    note_parts(parts, static_cast<std::size_t>(count), result, note_sent);
    return result;
}
ssize_t send(int fd, const void* from, std::size_t size, int flags) {
    const ssize_t result = ::syscall(SYS_sendto, fd, from, size, flags, nullptr, 0);
    note_sent(from, result);
    return result;
}
ssize_t sendto(int fd, const void* from, std::size_t size, int flags, const sockaddr* to, socklen_t to_size) {
    const ssize_t result = ::syscall(SYS_sendto, fd, from, size, flags, to, to_size);
    note_sent(from, result);
    return result;
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    const ssize_t result = ::syscall(SYS_sendmsg, fd, message, flags);
    note_parts(message->msg_iov, message->msg_iovlen, result, note_sent);
    return result;
}

ssize_t read(int fd, void* to, std::size_t size) {
    const ssize_t result = ::syscall(SYS_read, fd, to, size);
    note_received(to, result);
    return result;
}
ssize_t pread(int fd, void* to, std::size_t size, off_t offset) {
    const ssize_t result = ::syscall(SYS_pread64, fd, to, size, offset);
    note_received(to, result);
    return result;
}
ssize_t pread64(int fd, void* to, std::size_t size, off64_t offset) {
    return pread(fd, to, size, offset);
}
ssize_t readv(int fd, const iovec* parts, int count) {
    const ssize_t result = ::syscall(SYS_readv, fd, parts, count);
    note_parts(parts, static_cast<std::size_t>(count), result, note_received);
    return result;
}
ssize_t recv(int fd, void* to, std::size_t size, int flags) {
    const ssize_t result = ::syscall(SYS_recvfrom, fd, to, size, flags, nullptr, nullptr);
    note_received(to, result);
    return result;
}
ssize_t recvfrom(int fd, void* to, std::size_t size, int flags, sockaddr* from, socklen_t* from_size) {
    const ssize_t result = ::syscall(SYS_recvfrom, fd, to, size, flags, from, from_size);
    note_received(to, result);
    return result;
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
    const ssize_t result = ::syscall(SYS_recvmsg, fd, message, flags);
    note_parts(message->msg_iov, message->msg_iovlen, result, note_received);
    return result;
}

}  // extern "C"

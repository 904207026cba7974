// What copy_audit must see: known copies out of and into a mapping of the watched name, through each family of calls.
// Prints the bytes it moved each way as "out in sent received". Never part of the product.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kMappingBytes = 64 * 1024;

bool move_through_calls(char* shared) {
    std::vector<char> own(kMappingBytes);
    // Sizes that the compiler cannot know, so that it calls.
    volatile std::size_t copied_out = 12345;
    volatile std::size_t moved_out = 777;
    volatile std::size_t copied_in = 4321;
    std::memcpy(own.data(), shared + 100, copied_out);
    std::memmove(own.data(), shared + kMappingBytes - 777, moved_out);
    std::memcpy(shared, own.data(), copied_in);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) {
        return false;
    }
    const iovec parts[2] = {{own.data(), 10}, {shared, 90}};
    bool good = ::write(ends[0], shared, 100) == 100 && ::send(ends[0], shared + 5, 50, 0) == 50 &&
                ::writev(ends[0], parts, 2) == 100;
    good = good && ::read(ends[1], shared, 200) == 100 && ::recv(ends[1], own.data(), 200, 0) == 50;
    msghdr message{};
    iovec part{shared + 300, 500};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return good && ::recvmsg(ends[1], &message, 0) == 100;
}

}  // namespace

int main() {
    const int fd = ::memfd_create("perceptd:camera", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, kMappingBytes) != 0) {
        return 1;
    }
    void* const shared = ::mmap(nullptr, kMappingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED || !move_through_calls(static_cast<char*>(shared))) {
        return 1;
    }
    std::printf("%d %d %d %d\n", 12345 + 777, 4321, 100 + 50 + 90, 100 + 100);
    return 0;
}

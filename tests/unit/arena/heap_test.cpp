#include "arena/heap.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"

using namespace perceptd::arena;
using Catch::Matchers::Contains;

namespace {

/// What a hostile holder of `fd` achieves, tried in a child as another user. Bit i set = attack i worked.
int attacks_that_work(int fd, std::size_t size_bytes) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (::getuid() == 0 && ::setuid(65534) != 0) {
            ::_exit(128);
        }
        int worked = 0;
        const std::string path = "/proc/self/fd/" + std::to_string(fd);
        const int reopened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        for (const int target : {fd, reopened}) {
            if (target < 0) {
                continue;
            }
            const char byte = 'x';
            worked |= ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, target, 0) != MAP_FAILED ? 1 : 0;
            worked |= ::pwrite(target, &byte, 1, 0) == 1 ? 2 : 0;
            worked |= ::fallocate(target, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 ? 4 : 0;
            worked |= ::ftruncate(target, 0) == 0 ? 8 : 0;
            void* const readable = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, target, 0);
            if (readable != MAP_FAILED) {
                worked |= ::mprotect(readable, size_bytes, PROT_READ | PROT_WRITE) == 0 ? 16 : 0;
            }
        }
        ::_exit(worked);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a sealed memfd buffer can be read by anyone and written by its daemon alone") {
    const auto heap = make_heap("memfd");
    for (const Writer writer : {Writer::Daemon, Writer::Provider}) {
        const auto buffer = heap->allocate(8192, writer, "test");
        buffer->mapping().data()[0] = std::byte{1};
        buffer->seal();
        buffer->mapping().data()[0] = std::byte{2};
        REQUIRE_FALSE(buffer->provider_fd());
        REQUIRE(attacks_that_work(buffer->shared_fd(), 8192) == 0);
        const perceptd::MappedRegion client(buffer->shared_fd(), 8192, perceptd::MapAccess::Read);
        REQUIRE(client.data()[0] == std::byte{2});
    }
}

TEST_CASE("a provider that mapped before the seal keeps writing") {
    const auto buffer = make_heap("memfd")->allocate(4096, Writer::Provider, "test");
    const perceptd::UniqueFd writable = buffer->provider_fd();
    REQUIRE(writable);
    const perceptd::MappedRegion provider(writable.borrow(), 4096, perceptd::MapAccess::ReadWrite);
    buffer->seal();
    provider.data()[7] = std::byte{9};
    REQUIRE(buffer->mapping().data()[7] == std::byte{9});
    REQUIRE_THROWS(perceptd::MappedRegion(writable.borrow(), 4096, perceptd::MapAccess::ReadWrite));
}

TEST_CASE("heaps that are missing are passed over with the reason") {
    const HeapChoice choice = choose_heap({"dma_heap:system", "udmabuf", "memfd"}, Writer::Daemon, "/nonexistent");
    REQUIRE(choice.heap->name() == "memfd");
    REQUIRE(choice.rejected.size() == 2);
    REQUIRE_THAT(choice.rejected[0], Contains("dma_heap:system") && Contains("read-only"));
    REQUIRE_THAT(choice.rejected[1], Contains("/nonexistent/udmabuf") && Contains("No such file"));
}

TEST_CASE("no heap at all is an error that says what to do") {
    REQUIRE_THROWS_WITH(choose_heap({"dma_heap:system"}, Writer::Device, "/nonexistent"),
                        Contains("/nonexistent/dma_heap/system") && Contains("add \"memfd\""));
    REQUIRE_THROWS_AS(make_heap("ion"), perceptd::Error);
    REQUIRE_THROWS_AS(make_heap("dma_heap:../mem"), perceptd::Error);
}

// A client that reads every pixel of its frames in place, for the copy proof. With --copy it copies each frame first:
// the control that the audit would see it. Prints "windows frames frame_bytes inode" at the end.
#include <percept/percept.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

std::uint64_t sum_of(const std::uint8_t* bytes, std::size_t size) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
        sum += bytes[i];
    }
    return sum;
}

/// The inode of the mapping that holds `address`, as the kernel names it.
unsigned long long inode_at(const void* address) {
    std::FILE* maps = std::fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long long inode = 0;
    while (maps != nullptr && std::fgets(line, sizeof(line), maps) != nullptr) {
        unsigned long long begin = 0;
        unsigned long long end = 0;
        unsigned long long here = 0;
        if (std::sscanf(line, "%llx-%llx %*s %*s %*s %llu", &begin, &end, &here) == 3 &&
            reinterpret_cast<std::uintptr_t>(address) - begin < end - begin) {
            inode = here;
        }
    }
    if (maps != nullptr) {
        std::fclose(maps);
    }
    return inode;
}

int fail(const percept_client* client) {
    std::fprintf(stderr, "frame_reader: %s\n", percept_last_error(client));
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "Usage: frame_reader SOCKET WINDOWS [--copy]\n");
        return 2;
    }
    const long wanted = std::strtol(argv[2], nullptr, 10);
    const bool copies = argc > 3 && std::string(argv[3]) == "--copy";
    percept_client* client = nullptr;
    if (percept_connect(argv[1], &client) != PERCEPT_OK ||
        percept_subscribe(client, PERCEPT_CAMERA | PERCEPT_MICROPHONE | PERCEPT_IMU, 5000) != PERCEPT_OK) {
        return fail(client);
    }
    long frames = 0;
    std::size_t frame_bytes = 0;
    unsigned long long inode = 0;
    std::uint64_t sum = 0;
    std::vector<std::uint8_t> copy;
    for (long i = 0; i < wanted; ++i) {
        const percept_window* window = nullptr;
        if (percept_next_window(client, 5000, &window) != PERCEPT_OK) {
            return fail(client);
        }
        if (const percept_frame& frame = window->frame; frame.luma != nullptr) {
            frame_bytes = std::size_t{frame.stride_bytes} * (frame.height_px + (frame.height_px + 1) / 2);
            if (copies) {
                copy.resize(frame_bytes);
                std::memcpy(copy.data(), frame.luma, frame_bytes);
            }
            sum += sum_of(frame.luma, frame_bytes);
            inode = inode_at(frame.luma);
            ++frames;
        }
        if (percept_release(client, window) != PERCEPT_OK) {
            return fail(client);
        }
    }
    percept_close(client);
    std::printf("%ld %ld %zu %llu\n", wanted, frames, frame_bytes, inode);
    return sum == 0 ? 1 : 0;
}

// A hostile daemon: its packets, with the descriptors of real arenas or others, into libpercept's C interface.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdlib>

#include "fake_daemon.hpp"
#include "packets.hpp"
#include "percept/percept.h"

namespace {

constexpr int kNoWait = 0;

std::vector<int> descriptors_for(const fake::Arena& arena, std::uint8_t act) {
    std::vector<int> fds;
    for (int i = 0; i < (act & 7); ++i) {
        fds.push_back((act & 8) != 0 && i % 2 == 0 ? STDERR_FILENO : i % 2 == 0 ? arena.slots_fd : arena.header_fd);
    }
    return fds;
}

std::uint64_t touch(const percept_window& window) {
    std::uint64_t sum = 0;
    if (window.frame.luma != nullptr) {
        sum += window.frame.luma[0];
        sum += window.frame.luma[std::size_t{window.frame.stride_bytes} * window.frame.height_px - 1];
        sum += window.frame.chroma[std::size_t{window.frame.stride_bytes} * ((window.frame.height_px + 1) / 2) - 1];
    }
    for (std::uint32_t i = 0; i < window.patch_block.patch_count; ++i) {
        sum += window.patches[i].column;
    }
    for (std::uint32_t i = 0; i < window.mel_block.slice_count; ++i) {
        sum += window.mel_slices[i].slice_index;
    }
    for (std::uint32_t i = 0; i < window.motion_block.row_count; ++i) {
        sum += window.imu_rows[i].flags;
    }
    for (std::uint32_t i = 0; i < window.motion_block.feature_count; ++i) {
        sum += static_cast<std::uint64_t>(window.motion_features[i].time_ns);
    }
    return sum;
}

/// Puts the true inode where the fuzzer cannot guess it: an ArenaDescription with inode 1 means "the right one".
std::string with_inodes(std::span<const std::uint8_t> packet, const fake::Arena& arena) {
    fake::v1::ServerMessage message;
    if (!message.ParseFromArray(packet.data(), static_cast<int>(packet.size())) || !message.has_streams()) {
        return {packet.begin(), packet.end()};
    }
    const auto inode = arena.description(1, fake::v1::BLOCK_KIND_FRAME).inode();
    for (auto& description : *message.mutable_streams()->mutable_arenas()) {
        description.set_inode(description.inode() == 1 ? inode : description.inode());
    }
    return message.SerializeAsString();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static google::protobuf::LogHandler* const talkative =
        google::protobuf::SetLogHandler(nullptr);  // one line per bad string
    static_cast<void>(talkative);
    static const fake::Arena arena;
    static volatile std::uint64_t sink;
    std::span<const std::uint8_t> bytes(data, size);
    const fake::Daemon daemon;
    // Everything is said before the client listens, within what a socket holds.
    daemon.send_welcome();
    for (int packets = 0; !bytes.empty() && packets < 32; ++packets) {
        const std::uint8_t act = bytes.front();
        bytes = bytes.subspan(1);
        const auto packet = fuzz::next_packet(bytes);
        if (!packet.empty()) {
            daemon.send_bytes(with_inodes(packet, arena), descriptors_for(arena, act));
        }
    }
    percept_client* client = nullptr;
    if (percept_connect_fd(daemon.client_fd, &client) != PERCEPT_OK) {
        std::abort();
    }
    static_cast<void>(percept_subscribe(client, PERCEPT_CAMERA | PERCEPT_MICROPHONE | PERCEPT_IMU, kNoWait));
    const percept_window* window = nullptr;
    for (int i = 0; i < 32; ++i) {
        if (percept_next_window(client, kNoWait, &window) != PERCEPT_OK) {
            continue;
        }
        sink = sink + touch(*window);
        if (i % 2 == 0) {
            static_cast<void>(percept_release(client, window));
        }
    }
    static_cast<void>(percept_last_notice(client));
    percept_close(client);
    return 0;
}

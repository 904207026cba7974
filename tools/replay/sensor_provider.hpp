// The provider's side of perceptd's feed: offers sensors over the channel, then writes slots and records.
// Owns the channel, the doorbell and the writable mappings of ring and slots.
// Never paces or decodes: it waits only where the daemon has no room, and gives up when it is told to stop.
#pragma once

#include <percept_layout.h>
#include <perceptd/v1/channel.pb.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "channel.hpp"
#include "unique_fd.hpp"

namespace perceptd::replay {

/// What the daemon wants delivered. Streams are indexed by PERCEPT_STREAM_* - 1.
struct ProviderRun {
    std::array<bool, 3> is_on{};
    std::uint32_t run = 0;
    std::int64_t hub_start_ns = 0;
};

/// A writable shared mapping; move-only.
class WritableMapping {
public:
    WritableMapping() noexcept = default;
    WritableMapping(int fd, std::size_t size_bytes);  ///< Throws percept::Failure.
    WritableMapping(WritableMapping&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}
    WritableMapping& operator=(WritableMapping&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_bytes_, other.size_bytes_);
        return *this;
    }
    WritableMapping(const WritableMapping&) = delete;
    WritableMapping& operator=(const WritableMapping&) = delete;
    ~WritableMapping();
    [[nodiscard]] std::byte* data() const noexcept { return data_; }

private:
    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
};

/// Thread-bound. Every function but the destructor throws percept::Failure when the daemon refuses or is gone.
class SensorProvider {
public:
    /// `is_interrupted` is asked in every wait; true ends it.
    SensorProvider(const std::string& socket_path, const v1::Provide& offer, std::function<bool()> is_interrupted);

    /// Waits until the daemon wants something else than `current` (null = nothing was wanted). Empty = stop capturing,
    /// or interrupted.
    [[nodiscard]] std::optional<ProviderRun> wait_for_change();
    /// Takes what the daemon said so far and waits until `until_ns` (hub time; 0 = no wait). False: the run is over.
    [[nodiscard]] bool keeps_running(std::int64_t until_ns);
    /// A slot to fill, once there is one. Empty: the run is over.
    [[nodiscard]] std::optional<std::uint32_t> take_slot(std::uint32_t stream);
    [[nodiscard]] std::span<std::byte> slot(std::uint32_t stream, std::uint32_t slot_index) const;
    /// Hands a record in, once there is room; sets its run. False: the run is over.
    [[nodiscard]] bool submit(percept_feed_record record);
    [[nodiscard]] const std::optional<ProviderRun>& run() const noexcept { return run_; }

private:
    struct Slots {
        WritableMapping mapping;
        std::uint32_t slot_count = 0;
        std::uint64_t stride_bytes = 0;
        std::uint64_t slot_bytes = 0;
        std::uint64_t free_head = 0;
    };

    void send(const v1::ClientMessage& message);
    [[nodiscard]] percept::Packet expect(v1::ServerMessage::BodyCase body);
    void adopt(const v1::Provision& provision, std::vector<percept::UniqueFd> descriptors);
    void handle(const v1::ServerMessage& message);
    void take_messages();
    void wait(int timeout_ms);
    [[nodiscard]] percept_feed& feed() const noexcept;

    std::function<bool()> is_interrupted_;
    percept::Channel channel_;
    percept::UniqueFd doorbell_;
    WritableMapping ring_;
    std::array<Slots, 2> slots_;
    std::uint64_t record_tail_ = 0;
    std::optional<ProviderRun> run_;
    std::uint64_t change_count_ = 0;
    std::uint64_t seen_change_count_ = 0;
};

}  // namespace perceptd::replay

// channel.proto in and out of bytes; with answer_wire.hpp the only pair in the daemon that knows protobuf.
// Owns its messages and one output buffer, which it reuses so that a window costs no allocation in steady state.
// Never trusts what it decodes, never does I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "generate/question.hpp"
#include "session/delivery.hpp"
#include "session/feed.hpp"

namespace perceptd::session {

inline constexpr std::uint32_t kVersionMin = 1;
inline constexpr std::uint32_t kVersionMax = 1;
inline constexpr std::size_t kReleaseIdsMax = 256;

/// A decoded ClientMessage. `window_ids` is valid until the next decode().
struct Request {
    enum class Kind : std::uint8_t {
        Broken,
        Hello,
        Subscribe,
        Release,
        Bye,
        Provide,
        ProviderReady,
        Generate,
        StopGeneration,
        Resume
    };
    Kind kind = Kind::Broken;
    const char* fault = "";  ///< Broken: why, for the error's text
    std::uint32_t version_min = 0;
    std::uint32_t version_max = 0;
    SensorSet sensors;
    bool sensors_known = true;  ///< false: Subscribe named a sensor that this version does not know
    std::span<const std::uint64_t> window_ids;
    sensor::Offer offer;  ///< Provide: unchecked, but every number and enumerator is one
    std::uint64_t request_id = 0;
    std::uint64_t generation_id = 0;
    std::uint64_t next_number = 0;
    generate::Question question;  ///< Generate: unchecked
};

/// Thread-bound. Each encoder's result is valid until the next encoder call.
class Wire {
public:
    Wire();
    ~Wire();
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;

    [[nodiscard]] Request decode(std::span<const std::byte> bytes);

    std::span<const std::byte> welcome(std::uint32_t version, std::uint64_t session_id, std::uint32_t windows_max);
    /// `formats` may be null (a follow-up packet).
    std::span<const std::byte> streams(std::span<const ArenaOffer> arenas, const StreamOffer* formats,
                                       bool more_follow);
    /// Only the blocks of `sensors` are put in.
    std::span<const std::byte> window(const WindowOut& window, SensorSet sensors, const Counters& counters);
    std::span<const std::byte> notice(NoticeKind kind, std::string_view text, const Counters& counters,
                                      std::uint32_t windows_in_flight, const StreamStatistics& pipeline);
    std::span<const std::byte> error(const Error& error, bool fatal);
    std::span<const std::byte> provision(const Provision& provision);
    std::span<const std::byte> start(SensorSet sensors, std::uint32_t run, std::int64_t hub_start_ns);
    std::span<const std::byte> stop();

private:
    struct Messages;
    std::unique_ptr<Messages> messages_;
};

}  // namespace perceptd::session

// The interface to whatever computes: the CPU, a driver's process, a kernel driver. One to one with what a vendor
// implements (proto/percept_driver.h), except that nothing waits: what takes time is begun here and its end is an
// event. A device never waits for a fence: the queue gives it jobs that are ready, so that errors, limits and order are
// judged in one place.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "queue/device_description.hpp"
#include "queue/job.hpp"
#include "queue/program.hpp"

namespace perceptd::queue {

/// Lower runs first: tier (0 foreground, 1 background), then the deadline.
struct Rank {
    std::uint32_t tier = 0;
    std::int64_t deadline_ns = 0;
    auto operator<=>(const Rank&) const = default;
};

inline constexpr std::int64_t kUnlimitedNs = INT64_MAX;

struct DeviceBinding {
    DeviceHandle buffer = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
};

/// A job as a device sees it; borrowed for the call. Ranges lie in their buffers.
struct DeviceJob {
    JobId id = 0;
    DeviceHandle program = 0;
    Rank rank;
    std::int64_t grant_ns = kUnlimitedNs;  ///< time on a preemptive device before it must ask again (GrantSpent)
    std::span<const DeviceBinding> inputs;
    std::span<const DeviceBinding> outputs;
};

struct DeviceEvent {
    enum class Kind : std::uint8_t {
        JobEnded,       ///< `job`, `status`, `ran_ns` in all; told once per accepted job, also after cancel and reset
        GrantSpent,     ///< `job` stands still until grant(); `ran_ns` in all
        ProgramLoaded,  ///< `program`, `status`: Ok, Invalid, Unsupported, NoMemory or DeviceLost, and `reason`
        Lost,           ///< the device is gone; JobEnded(DeviceLost) of every job it held came before; `reason`
    };
    Kind kind = Kind::JobEnded;
    JobStatus status = JobStatus::Ok;
    JobId job = 0;
    DeviceHandle program = 0;
    std::int64_t ran_ns = 0;
    std::array<char, 160> reason{};  ///< for people, ends with 0
};

enum class DeviceHealth : std::uint8_t { Good, Lost, Quarantined };

/// Thread-bound to the thread of its queue, all functions; none blocks for longer than a system call that maps memory
/// or writes to a socket. "Real-time" adds: no allocation, no lock, no exception. The destructor may wait for a
/// segment.
class Device {
public:
    virtual ~Device() = default;

    [[nodiscard]] virtual const DeviceDescription& description() const noexcept = 0;
    /// Real-time.
    [[nodiscard]] virtual DeviceHealth health() const noexcept = 0;

    /// Throws Error(InvalidArgument, Unsupported, QuotaExceeded) or std::system_error; nothing is kept then.
    [[nodiscard]] virtual DeviceHandle import_buffer(const BufferDescription& buffer) = 0;
    /// No accepted job uses it any more. Nothing for a handle that it does not know (any more).
    virtual void release_buffer(DeviceHandle buffer) noexcept = 0;

    /// Begins to load; ProgramLoaded tells how it went, on good and bad ways alike. `program` is borrowed for the call.
    /// Throws Error(Unsupported) when this device never loads such a program, Error(QuotaExceeded) when it is full.
    [[nodiscard]] virtual DeviceHandle load(const Program& program) = 0;
    /// Also while it loads (no event follows then). No accepted job uses it any more.
    virtual void unload(DeviceHandle program) noexcept = 0;

    /// Ok: accepted, JobEnded follows. Full: not now. Invalid: a handle, a count or a size that the program does not
    /// take. Ended: the device is lost. Real-time.
    [[nodiscard]] virtual Status submit(const DeviceJob& job) noexcept = 0;
    /// A new rank and `grant_ns` from now on for an accepted job; nothing for one that has ended, or where
    /// is_preemptive is false. Real-time.
    virtual void grant(JobId job, const Rank& rank, std::int64_t grant_ns) noexcept = 0;
    /// Ends a job early: before it is begun, or at the next segment. Its event is Cancelled, or how it ended before.
    /// Real-time.
    virtual void cancel(JobId job) noexcept = 0;
    /// Every job ends as Cancelled (or as it ended before); buffers and programs stay. A lost device tries to come
    /// back, empty of both; health() tells.
    virtual void reset() noexcept = 0;
    /// The queue gives the device up (a job ran over its limit): jobs end as DeviceLost, Lost follows, health() is Lost
    /// until reset(). Real-time.
    virtual void abandon() noexcept = 0;

    /// Readable while take_event() has something. Borrowed, the same for the device's life.
    [[nodiscard]] virtual int event_fd() const noexcept = 0;
    /// The next event; false: none. In the order in which things happened. Real-time.
    [[nodiscard]] virtual bool take_event(DeviceEvent& event) noexcept = 0;
};

}  // namespace perceptd::queue

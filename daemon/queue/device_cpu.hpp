// The device that is always there: the processor. Runs jobs in short segments on a thread of its own, always the most
// urgent of those it holds. Owns the thread, the programs and the mappings of the buffers. Never blocks the queue's
// thread, never stops inside a segment, never gives other bits because a job was interrupted.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "base/mapped_region.hpp"
#include "base/rt_thread.hpp"
#include "base/spsc_ring.hpp"
#include "base/unique_fd.hpp"
#include "queue/cpu_loader.hpp"
#include "queue/cpu_program.hpp"
#include "queue/device.hpp"
#include "queue/run_queue.hpp"

namespace perceptd::queue {

struct DeviceCpuOptions {
    std::string name = "cpu";
    std::int64_t segment_ns = 2'000'000;
    std::size_t worker_count = 1;  ///< threads of a decoder, the device's own among them
    int fifo_priority = 0;
    int cpu_index = -1;
    std::size_t buffers_max = 4096;
    std::size_t programs_max = 64;
};

/// Threads as Device. A program runs one job at a time: a more urgent job of the same program lets the begun one finish
/// first.
class DeviceCpu final : public Device {
public:
    static constexpr std::size_t kJobsMax = 256;

    /// Throws std::system_error.
    explicit DeviceCpu(DeviceCpuOptions options = {});
    ~DeviceCpu() override;

    [[nodiscard]] const DeviceDescription& description() const noexcept override { return description_; }
    [[nodiscard]] DeviceHealth health() const noexcept override {
        return is_abandoned_ ? DeviceHealth::Lost : DeviceHealth::Good;
    }
    [[nodiscard]] DeviceHandle import_buffer(const BufferDescription& buffer) override;
    void release_buffer(DeviceHandle buffer) noexcept override;
    [[nodiscard]] DeviceHandle load(const Program& program) override;
    void unload(DeviceHandle program) noexcept override;
    [[nodiscard]] Status submit(const DeviceJob& job) noexcept override;
    void grant(JobId job, const Rank& rank, std::int64_t grant_ns) noexcept override;
    void cancel(JobId job) noexcept override;
    void reset() noexcept override;
    void abandon() noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return event_.borrow(); }
    [[nodiscard]] bool take_event(DeviceEvent& event) noexcept override;

private:
    struct Buffer {
        DeviceHandle handle = 0;  // 0: a free place
        UniqueFd fd;
        MappedRegion mapping;
        BufferDescription description;
        bool is_dma_buf = false;
    };
    struct Loaded {
        DeviceHandle handle = 0;
        std::unique_ptr<CpuProgram> program;  // null while it is loaded
    };
    /// What the queue's thread tells the device's.
    struct Command {
        enum class Kind : std::uint8_t { Submit, Grant, Cancel, CancelAll, Abandon } kind = Kind::Cancel;
        JobId id = 0;
        Rank rank;
        std::int64_t grant_ns = 0;
        CpuProgram* program = nullptr;
        std::uint32_t input_count = 0;
        std::uint32_t output_count = 0;
        std::array<CpuBinding, kBindingsMax> inputs;
        std::array<CpuBinding, kBindingsMax> outputs;
    };
    struct Running {
        Command job;
        bool has_begun = false;
    };

    [[nodiscard]] bool push(const Command& command) noexcept;
    [[nodiscard]] const Buffer* find_buffer(DeviceHandle handle) const noexcept;
    [[nodiscard]] bool bind(std::span<const DeviceBinding> from,
                            std::array<CpuBinding, kBindingsMax>& to) const noexcept;
    // On the device's thread.
    void serve(const std::atomic<bool>& stop) noexcept;
    void take_commands() noexcept;
    [[nodiscard]] std::size_t turn_of(std::size_t place) const noexcept;
    [[nodiscard]] Status run_segment(std::size_t place) noexcept;
    void end(std::size_t place, JobStatus status) noexcept;
    void tell(const DeviceEvent& event) noexcept;

    DeviceCpuOptions options_;
    DeviceDescription description_;
    UniqueFd event_;  // to the queue
    UniqueFd work_;   // to the device's thread
    std::atomic<bool> is_idle_{false};
    // The queue's thread's own.
    std::vector<Buffer> buffers_;
    std::vector<Loaded> programs_;
    DeviceHandle last_handle_ = 0;
    std::size_t accepted_ = 0;  // jobs whose end has not been taken
    bool is_abandoned_ = false;
    // Between the two.
    SpscRing<Command, 1024> commands_;
    SpscRing<DeviceEvent, 1024> events_;
    // The device's thread's own.
    RunQueue held_{kJobsMax};
    std::vector<Running> running_{kJobsMax};
    // Last: their threads use all of the above.
    std::unique_ptr<CpuLoader> loader_;
    std::unique_ptr<RtThread> thread_;
};

}  // namespace perceptd::queue

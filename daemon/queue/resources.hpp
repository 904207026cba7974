// The buffers and programs of a queue, on all its devices at once, so that a job can run on any of them. Owns a
// descriptor of each buffer and what each program was loaded from: a device that comes back empty is filled again from
// here. Never lets go of what a job still uses: a release takes effect with the last job.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "queue/device.hpp"

namespace perceptd::queue {

/// Thread-bound to the queue's thread. Importing, releasing and loading allocate; what a job needs does not.
class Resources {
public:
    enum class ProgramState : std::uint8_t { Absent, Loading, Loaded, Failed };

    /// The devices are borrowed and outlive this.
    Resources(std::vector<Device*> devices, std::size_t buffers_max, std::size_t programs_max);

    /// Imports on every device that takes it. Throws Error(QuotaExceeded) when there is no room, or what the first
    /// device says when none takes it; nothing is kept then.
    [[nodiscard]] BufferId import_buffer(const BufferDescription& buffer);
    /// True: it is gone; false: it goes with the last job that uses it (drop_job() says so), or there is none.
    bool release_buffer(BufferId buffer) noexcept;
    /// Begins to load on every device that takes such a program; throws as import_buffer().
    [[nodiscard]] ProgramId load(Program program);
    bool unload(ProgramId program) noexcept;

    struct Loaded {
        ProgramId program = 0;  ///< 0: nobody needs to be told
        JobStatus status = JobStatus::Ok;
    };
    /// A ProgramLoaded event of a device. The answer is told once per program: Ok with the first device that has it,
    /// the last one's fault when none has.
    [[nodiscard]] Loaded note_loaded(std::size_t device, const DeviceEvent& event) noexcept;
    [[nodiscard]] ProgramState state(ProgramId program, std::size_t device) const noexcept;

    /// Whether ids, ranges and access of the job are right.
    [[nodiscard]] bool accepts(const Job& job) const noexcept;
    /// The job uses its buffers and its program until drop_job(), which tells how many of them are gone now.
    void hold_job(const Job& job) noexcept;
    void drop_job(const Job& job, std::vector<BufferId>& gone_buffers) noexcept;

    using Bindings = std::array<DeviceBinding, kBindingsMax>;
    /// The job in the device's own handles; false: the device lacks one of them.
    [[nodiscard]] bool bind(const Job& job, std::size_t device, DeviceHandle& program, Bindings& inputs,
                            Bindings& outputs) const noexcept;

    /// The device has come back empty: everything is imported and loaded again; what it refuses now stays away from it.
    void refill(std::size_t device);
    [[nodiscard]] std::size_t buffer_count() const noexcept;
    [[nodiscard]] std::size_t program_count() const noexcept;

private:
    struct Item {
        std::uint32_t generation = 0;
        bool is_used = false;
        bool is_leaving = false;
        std::uint32_t jobs = 0;
        std::vector<DeviceHandle> handles;  // by device, 0: not there
    };
    struct Buffer : Item {
        UniqueFd fd;
        BufferDescription description;
    };
    struct ProgramItem : Item {
        Program program;
        std::vector<ProgramState> states;
        bool is_told = false;
    };

    template <typename List>
    [[nodiscard]] static auto find(List& list, std::uint64_t id) noexcept -> decltype(&list[0]);
    template <typename List>
    [[nodiscard]] static std::size_t take_place(List& list, const char* what);
    void drop(Buffer& buffer) noexcept;
    void drop(ProgramItem& program) noexcept;
    void import_on(std::size_t device, Buffer& buffer);
    void load_on(std::size_t device, ProgramItem& item);

    std::vector<Device*> devices_;
    std::vector<Buffer> buffers_;
    std::vector<ProgramItem> programs_;
};

}  // namespace perceptd::queue

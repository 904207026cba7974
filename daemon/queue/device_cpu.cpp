#include "queue/device_cpu.hpp"

#include <linux/dma-buf.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"
#include "base/event_fd.hpp"

namespace perceptd::queue {
namespace {

bool is_dma_buf(int fd) noexcept {
    // Nothing but a dma-buf knows the request at all; without flags it is refused, and changes nothing.
    dma_buf_sync request{0};
    return ::ioctl(fd, DMA_BUF_IOCTL_SYNC, &request) == 0 || errno != ENOTTY;
}

template <typename List>
std::size_t place_in(List& list, const char* what) {
    const auto free = std::find_if(list.begin(), list.end(), [](const auto& item) { return item.handle == 0; });
    if (free == list.end()) {
        Error error(ErrorCode::QuotaExceeded,
                    std::string("the CPU device has no room for another ") + what + "; release one first");
        error.limit = list.size();
        error.used = list.size();
        throw error;
    }
    return static_cast<std::size_t>(free - list.begin());
}

}  // namespace

DeviceCpu::DeviceCpu(DeviceCpuOptions options)
    : options_(std::move(options)),
      event_(make_event()),
      work_(make_event()),
      buffers_(options_.buffers_max),
      programs_(options_.programs_max) {
    description_.name = options_.name;
    description_.firmware = "perceptd " PERCEPTD_VERSION;
    description_.elements = kElementI8 | kElementI32 | kElementF32 | kElementF16 | kElementI4;
    description_.job_limit_ns = kUnlimitedNs;  // it is slow, not lost; a long job stops for more urgent ones
    description_.is_preemptive = true;
    description_.segment_ns = options_.segment_ns;
    loader_ = std::make_unique<CpuLoader>(
        CpuDecoderOptions{options_.worker_count, options_.segment_ns, options_.fifo_priority},
        [this] { signal_event(event_.borrow()); });
    thread_ = std::make_unique<RtThread>(
        RtThreadOptions{"cpu-device", options_.fifo_priority, options_.cpu_index},
        [this](const std::atomic<bool>& stop) { serve(stop); }, [this] { signal_event(work_.borrow()); });
}

DeviceCpu::~DeviceCpu() = default;

DeviceHandle DeviceCpu::import_buffer(const BufferDescription& description) {
    const std::size_t place = place_in(buffers_, "buffer");
    struct stat file {};
    if (::fstat(description.fd, &file) != 0) {
        throw_errno("fstat");
    }
    const std::uint64_t end = description.offset_bytes + description.size_bytes;
    const auto file_bytes = static_cast<std::uint64_t>(std::max<off_t>(file.st_size, 0));
    if (description.size_bytes == 0 || end < description.offset_bytes || (file_bytes > 0 && end > file_bytes)) {
        Error error(ErrorCode::InvalidArgument, "the buffer ends behind its memory; name a range inside it");
        error.limit = file_bytes;
        error.used = end;
        throw error;
    }
    if (description.modifier != 0) {
        throw Error(ErrorCode::Unsupported,
                    "the processor reads linear memory only; allocate the buffer without a modifier");
    }
    const int fd = ::fcntl(description.fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) {
        throw_errno("fcntl(F_DUPFD_CLOEXEC)");
    }
    UniqueFd owned(fd);
    const bool may_write = (description.access & kAccessWrite) != 0;
    MappedRegion mapping(fd, end, may_write ? MapAccess::ReadWrite : MapAccess::Read);
    buffers_[place] = {++last_handle_, std::move(owned), std::move(mapping), description, is_dma_buf(fd)};
    return last_handle_;
}

void DeviceCpu::release_buffer(DeviceHandle handle) noexcept {
    for (Buffer& buffer : buffers_) {
        if (handle != 0 && buffer.handle == handle) {
            buffer = {};
        }
    }
}

DeviceHandle DeviceCpu::load(const Program& program) {
    if (std::holds_alternative<VendorProgram>(program)) {
        throw Error(ErrorCode::Unsupported, "a vendor's program runs on the vendor's device only; install its driver");
    }
    Loaded& loaded = programs_[place_in(programs_, "program")];
    if (const auto* const standard = std::get_if<StandardProgram>(&program)) {
        CpuLoaded answer{
            .handle = last_handle_ + 1, .program = make_cpu_standard(*standard), .status = JobStatus::Ok, .reason = {}};
        loader_->answer(std::move(answer));
    } else {
        loader_->load(last_handle_ + 1, std::get<DecoderProgram>(program));
    }
    loaded.handle = ++last_handle_;
    return loaded.handle;
}

void DeviceCpu::unload(DeviceHandle handle) noexcept {
    for (Loaded& loaded : programs_) {
        if (handle != 0 && loaded.handle == handle) {
            loaded.handle = 0;
            if (loaded.program) {
                loader_->free(std::move(loaded.program));
            }
        }
    }
}

const DeviceCpu::Buffer* DeviceCpu::find_buffer(DeviceHandle handle) const noexcept {
    const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                    [&](const Buffer& buffer) { return handle != 0 && buffer.handle == handle; });
    return found == buffers_.end() ? nullptr : &*found;
}

bool DeviceCpu::bind(std::span<const DeviceBinding> from, std::array<CpuBinding, kBindingsMax>& to) const noexcept {
    for (std::size_t i = 0; i < from.size(); ++i) {
        const Buffer* const buffer = find_buffer(from[i].buffer);
        if (buffer == nullptr || from[i].offset_bytes > buffer->description.size_bytes ||
            from[i].size_bytes > buffer->description.size_bytes - from[i].offset_bytes) {
            return false;
        }
        to[i] = {buffer->mapping.data() + buffer->description.offset_bytes + from[i].offset_bytes, from[i].size_bytes,
                 buffer->fd.borrow(), buffer->is_dma_buf};
    }
    return true;
}

Status DeviceCpu::submit(const DeviceJob& job) noexcept {
    if (is_abandoned_) {
        return Status::Ended;
    }
    if (accepted_ >= kJobsMax) {
        return Status::Full;
    }
    const auto loaded = std::find_if(programs_.begin(), programs_.end(), [&](const Loaded& candidate) {
        return job.program != 0 && candidate.handle == job.program && candidate.program != nullptr;
    });
    Command command{.kind = Command::Kind::Submit, .id = job.id, .rank = job.rank, .grant_ns = job.grant_ns};
    if (loaded == programs_.end() || job.inputs.size() > kBindingsMax || job.outputs.size() > kBindingsMax ||
        !bind(job.inputs, command.inputs) || !bind(job.outputs, command.outputs)) {
        return Status::Invalid;
    }
    command.program = loaded->program.get();
    command.input_count = static_cast<std::uint32_t>(job.inputs.size());
    command.output_count = static_cast<std::uint32_t>(job.outputs.size());
    if (!command.program->accepts({command.inputs.data(), job.inputs.size()},
                                  {command.outputs.data(), job.outputs.size()})) {
        return Status::Invalid;
    }
    if (!push(command)) {
        return Status::Full;
    }
    ++accepted_;
    return Status::Ok;
}

bool DeviceCpu::push(const Command& command) noexcept {
    static_assert(std::is_trivially_copyable_v<Command>);
    if (!commands_.push(command)) {
        return false;
    }
    // Two exchanges of one word order this against the device's thread, which says that it sleeps before it looks a
    // last time: either it sees the command, or this sees that it sleeps. (A fence would do too; ThreadSanitizer knows
    // none.)
    if (is_idle_.exchange(false, std::memory_order_acq_rel)) {
        signal_event(work_.borrow());
    }
    return true;
}

// A full ring cannot lose these: there is room for every held job's submission, grant and cancellation, and a repeated
// request for the same job is refused by whoever asks without need.
void DeviceCpu::grant(JobId job, const Rank& rank, std::int64_t grant_ns) noexcept {
    static_cast<void>(push({.kind = Command::Kind::Grant, .id = job, .rank = rank, .grant_ns = grant_ns}));
}

void DeviceCpu::cancel(JobId job) noexcept {
    static_cast<void>(push({.kind = Command::Kind::Cancel, .id = job}));
}

void DeviceCpu::reset() noexcept {
    static_cast<void>(push({.kind = Command::Kind::CancelAll}));
    if (is_abandoned_) {
        is_abandoned_ = false;
        for (Loaded& loaded : programs_) {
            unload(loaded.handle);
        }
        for (Buffer& buffer : buffers_) {
            buffer = {};
        }
    }
}

void DeviceCpu::abandon() noexcept {
    is_abandoned_ = true;
    static_cast<void>(push({.kind = Command::Kind::Abandon}));
}

bool DeviceCpu::take_event(DeviceEvent& event) noexcept {
    for (int look = 0; look < 2; ++look) {
        if (events_.pop(event)) {
            accepted_ -= event.kind == DeviceEvent::Kind::JobEnded ? 1 : 0;
            return true;
        }
        CpuLoaded loaded;
        while (loader_->take(loaded)) {
            const auto place = std::find_if(programs_.begin(), programs_.end(),
                                            [&](const Loaded& candidate) { return candidate.handle == loaded.handle; });
            if (place == programs_.end()) {
                if (loaded.program) {
                    loader_->free(std::move(loaded.program));  // unloaded meanwhile: nobody asks any more
                }
                continue;
            }
            event = {.kind = DeviceEvent::Kind::ProgramLoaded, .status = loaded.status, .program = loaded.handle};
            std::strncpy(event.reason.data(), loaded.reason.c_str(), event.reason.size() - 1);
            place->program = std::move(loaded.program);
            return true;
        }
        // Cleared only when nothing was there, and looked at once more after: what comes between signals again.
        if (look == 0) {
            clear_event(event_.borrow());
        }
    }
    return false;
}

}  // namespace perceptd::queue

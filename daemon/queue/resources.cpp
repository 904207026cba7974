#include "queue/resources.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::queue {
namespace {

std::uint64_t id_of(std::size_t index, std::uint32_t generation) noexcept {
    return (std::uint64_t{generation} << 32) | (index + 1);
}

bool lies_inside(const Binding& binding, const BufferDescription& buffer, std::uint32_t access) noexcept {
    return (buffer.access & access) == access && binding.size_bytes > 0 && binding.offset_bytes <= buffer.size_bytes &&
           binding.size_bytes <= buffer.size_bytes - binding.offset_bytes;
}

}  // namespace

Resources::Resources(std::vector<Device*> devices, std::size_t buffers_max, std::size_t programs_max)
    : devices_(std::move(devices)), buffers_(buffers_max), programs_(programs_max) {}

template <typename List>
auto Resources::find(List& list, std::uint64_t id) noexcept -> decltype(&list[0]) {
    const std::uint64_t index = (id & 0xFFFFFFFF) - 1;
    if (index >= list.size() || !list[index].is_used || list[index].generation != id >> 32) {
        return nullptr;
    }
    return &list[index];
}

template <typename List>
std::size_t Resources::take_place(List& list, const char* what) {
    const auto free = std::find_if(list.begin(), list.end(), [](const auto& item) { return !item.is_used; });
    if (free == list.end()) {
        Error error(ErrorCode::QuotaExceeded,
                    std::string("the queue has no room for another ") + what + "; release one first");
        error.limit = list.size();
        error.used = list.size();
        throw error;
    }
    return static_cast<std::size_t>(free - list.begin());
}

void Resources::import_on(std::size_t device, Buffer& buffer) {
    buffer.description.fd = buffer.fd.borrow();
    buffer.handles[device] = devices_[device]->import_buffer(buffer.description);
}

BufferId Resources::import_buffer(const BufferDescription& description) {
    const std::size_t index = take_place(buffers_, "buffer");
    Buffer& buffer = buffers_[index];
    const int fd = ::fcntl(description.fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) {
        throw_errno("fcntl(F_DUPFD_CLOEXEC)");
    }
    buffer.fd.reset(fd);
    buffer.description = description;
    buffer.handles.assign(devices_.size(), 0);
    std::exception_ptr first;
    bool is_anywhere = false;
    for (std::size_t device = 0; device < devices_.size(); ++device) {
        try {
            // A lost device gets it when it comes back.
            if (devices_[device]->health() == DeviceHealth::Good) {
                import_on(device, buffer);
                is_anywhere = true;
            }
        } catch (const std::exception&) {
            first = first ? first : std::current_exception();
        }
    }
    if (!is_anywhere) {
        buffer.fd.reset();
        if (first) {
            std::rethrow_exception(first);
        }
        throw Error(ErrorCode::Busy, "every device of this queue is lost; try again when one is back");
    }
    buffer.is_used = true;
    buffer.is_leaving = false;
    buffer.jobs = 0;
    return id_of(index, ++buffer.generation);
}

bool Resources::release_buffer(BufferId id) noexcept {
    Buffer* const buffer = find(buffers_, id);
    if (buffer == nullptr || buffer->is_leaving) {
        return false;
    }
    buffer->is_leaving = true;
    if (buffer->jobs == 0) {
        drop(*buffer);
        return true;
    }
    return false;
}

void Resources::drop(Buffer& buffer) noexcept {
    for (std::size_t device = 0; device < devices_.size(); ++device) {
        if (buffer.handles[device] != 0) {
            devices_[device]->release_buffer(buffer.handles[device]);
        }
    }
    buffer.fd.reset();
    buffer.is_used = false;
}

void Resources::load_on(std::size_t device, ProgramItem& item) {
    item.states[device] = ProgramState::Failed;
    item.handles[device] = devices_[device]->load(item.program);
    item.states[device] = ProgramState::Loading;
}

ProgramId Resources::load(Program program) {
    const std::size_t index = take_place(programs_, "program");
    ProgramItem& item = programs_[index];
    item.program = std::move(program);
    item.handles.assign(devices_.size(), 0);
    item.states.assign(devices_.size(), ProgramState::Absent);
    std::exception_ptr first;
    bool is_anywhere = false;
    for (std::size_t device = 0; device < devices_.size(); ++device) {
        try {
            if (devices_[device]->health() == DeviceHealth::Good) {
                load_on(device, item);
                is_anywhere = true;
            }
        } catch (const std::exception&) {
            first = first ? first : std::current_exception();
        }
    }
    if (!is_anywhere) {
        item.program = Program{};
        if (first) {
            std::rethrow_exception(first);
        }
        throw Error(ErrorCode::Busy, "every device of this queue is lost; try again when one is back");
    }
    item.is_used = true;
    item.is_leaving = false;
    item.is_told = false;
    item.jobs = 0;
    return id_of(index, ++item.generation);
}

bool Resources::unload(ProgramId id) noexcept {
    ProgramItem* const item = find(programs_, id);
    if (item == nullptr || item->is_leaving) {
        return false;
    }
    item->is_leaving = true;
    if (item->jobs == 0) {
        drop(*item);
        return true;
    }
    return false;
}

void Resources::drop(ProgramItem& item) noexcept {
    for (std::size_t device = 0; device < devices_.size(); ++device) {
        if (item.handles[device] != 0) {
            devices_[device]->unload(item.handles[device]);
        }
    }
    item.program = Program{};
    item.is_used = false;
}

Resources::Loaded Resources::note_loaded(std::size_t device, const DeviceEvent& event) noexcept {
    for (std::size_t i = 0; i < programs_.size(); ++i) {
        ProgramItem& item = programs_[i];
        if (!item.is_used || item.handles[device] != event.program || item.states[device] != ProgramState::Loading) {
            continue;
        }
        item.states[device] = event.status == JobStatus::Ok ? ProgramState::Loaded : ProgramState::Failed;
        const bool is_open =
            std::find(item.states.begin(), item.states.end(), ProgramState::Loading) != item.states.end();
        if (item.is_told || (event.status != JobStatus::Ok && is_open)) {
            return {};
        }
        item.is_told = true;
        return {id_of(i, item.generation), event.status};
    }
    return {};
}

Resources::ProgramState Resources::state(ProgramId program, std::size_t device) const noexcept {
    const ProgramItem* const item = find(programs_, program);
    return item == nullptr ? ProgramState::Absent : item->states[device];
}

bool Resources::accepts(const Job& job) const noexcept {
    const ProgramItem* const program = find(programs_, job.program);
    if (program == nullptr || program->is_leaving || job.input_count > kBindingsMax ||
        job.output_count > kBindingsMax) {
        return false;
    }
    const auto fits = [&](const Binding& binding, std::uint32_t access) {
        const Buffer* const buffer = find(buffers_, binding.buffer);
        return buffer != nullptr && !buffer->is_leaving && lies_inside(binding, buffer->description, access);
    };
    return std::all_of(job.inputs.begin(), job.inputs.begin() + job.input_count,
                       [&](const Binding& binding) { return fits(binding, kAccessRead); }) &&
           std::all_of(job.outputs.begin(), job.outputs.begin() + job.output_count,
                       [&](const Binding& binding) { return fits(binding, kAccessWrite); });
}

void Resources::hold_job(const Job& job) noexcept {
    ++find(programs_, job.program)->jobs;
    for (std::uint32_t i = 0; i < job.input_count; ++i) {
        ++find(buffers_, job.inputs[i].buffer)->jobs;
    }
    for (std::uint32_t i = 0; i < job.output_count; ++i) {
        ++find(buffers_, job.outputs[i].buffer)->jobs;
    }
}

void Resources::drop_job(const Job& job, std::vector<BufferId>& gone_buffers) noexcept {
    const auto leave = [&](const Binding& binding) {
        Buffer* const buffer = find(buffers_, binding.buffer);
        PERCEPTD_ASSERT(buffer != nullptr && buffer->jobs > 0);
        if (--buffer->jobs == 0 && buffer->is_leaving) {
            drop(*buffer);
            gone_buffers.push_back(binding.buffer);  // the caller has reserved room for all of a job
        }
    };
    std::for_each(job.inputs.begin(), job.inputs.begin() + job.input_count, leave);
    std::for_each(job.outputs.begin(), job.outputs.begin() + job.output_count, leave);
    ProgramItem* const program = find(programs_, job.program);
    PERCEPTD_ASSERT(program != nullptr && program->jobs > 0);
    if (--program->jobs == 0 && program->is_leaving) {
        drop(*program);
    }
}

bool Resources::bind(const Job& job, std::size_t device, DeviceHandle& program, Bindings& inputs,
                     Bindings& outputs) const noexcept {
    program = find(programs_, job.program)->handles[device];
    const auto translate = [&](const auto& from, std::uint32_t count, Bindings& to) {
        for (std::uint32_t i = 0; i < count; ++i) {
            to[i] = {find(buffers_, from[i].buffer)->handles[device], from[i].offset_bytes, from[i].size_bytes};
            if (to[i].buffer == 0) {
                return false;
            }
        }
        return true;
    };
    return program != 0 && translate(job.inputs, job.input_count, inputs) &&
           translate(job.outputs, job.output_count, outputs);
}

void Resources::refill(std::size_t device) {
    for (Buffer& buffer : buffers_) {
        if (buffer.is_used) {
            buffer.handles[device] = 0;
            try {
                import_on(device, buffer);
            } catch (const std::exception&) {  // bind() sees that it is not there
            }
        }
    }
    for (ProgramItem& item : programs_) {
        if (item.is_used && !item.is_leaving) {
            item.handles[device] = 0;
            try {
                load_on(device, item);
            } catch (const std::exception&) {  // state() says Failed
            }
        }
    }
}

std::size_t Resources::buffer_count() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(buffers_.begin(), buffers_.end(), [](const Buffer& b) { return b.is_used; }));
}

std::size_t Resources::program_count() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(programs_.begin(), programs_.end(), [](const ProgramItem& p) { return p.is_used; }));
}

}  // namespace perceptd::queue

#include "queue/cpu_loader.hpp"

#include <pthread.h>
#include <signal.h>

#include <new>
#include <utility>

#include "base/error.hpp"

namespace perceptd::queue {

CpuLoader::CpuLoader(const CpuDecoderOptions& options, std::function<void()> tell)
    : options_(options), tell_(std::move(tell)), thread_([this] { serve(); }) {}

CpuLoader::~CpuLoader() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void CpuLoader::load(DeviceHandle handle, const DecoderProgram& program) {
    {
        const std::lock_guard lock(mutex_);
        requests_.push_back({handle, program, nullptr});
    }
    changed_.notify_one();
}

void CpuLoader::answer(CpuLoaded loaded) {
    {
        const std::lock_guard lock(mutex_);
        answers_.push_back(std::move(loaded));
        has_answers_.store(true, std::memory_order_release);
    }
    tell_();
}

void CpuLoader::free(std::unique_ptr<CpuProgram> program) {
    {
        const std::lock_guard lock(mutex_);
        requests_.push_back({0, {}, std::move(program)});
    }
    changed_.notify_one();
}

bool CpuLoader::take(CpuLoaded& loaded) {
    if (!has_answers_.load(std::memory_order_acquire)) {
        return false;
    }
    const std::lock_guard lock(mutex_);
    loaded = std::move(answers_.front());
    answers_.pop_front();
    has_answers_.store(!answers_.empty(), std::memory_order_release);
    return true;
}

CpuLoaded CpuLoader::loaded(const Request& request) const {
    CpuLoaded result{.handle = request.handle, .program = nullptr, .status = JobStatus::Invalid, .reason = {}};
    try {
        result.program = make_cpu_decoder(request.program, options_);
        result.status = JobStatus::Ok;
    } catch (const std::bad_alloc&) {
        result.status = JobStatus::NoMemory;
        result.reason = request.program.path + ": not enough memory for its weights; unload another model";
    } catch (const Error& error) {
        result.status = error.code() == ErrorCode::Unsupported ? JobStatus::Unsupported : JobStatus::Invalid;
        result.reason = error.what();
    } catch (const std::exception& error) {
        result.reason = error.what();
    }
    return result;
}

void CpuLoader::serve() {
    ::pthread_setname_np(::pthread_self(), "cpu-loader");
    // Signals belong to the main thread's loop.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return is_stopping_ || !requests_.empty(); });
        if (is_stopping_) {
            return;
        }
        Request request = std::move(requests_.front());
        requests_.pop_front();
        lock.unlock();
        request.leaving.reset();
        if (request.handle != 0) {
            answer(loaded(request));
        }
        lock.lock();
    }
}

}  // namespace perceptd::queue

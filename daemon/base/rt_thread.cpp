#include "base/rt_thread.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "base/hot_path.hpp"

namespace perceptd {
namespace {

bool apply_options(const RtThreadOptions& options) noexcept {
    ::pthread_setname_np(::pthread_self(), options.name.substr(0, 15).c_str());
    if (options.cpu_index >= 0) {
        cpu_set_t cores;
        CPU_ZERO(&cores);
        CPU_SET(static_cast<unsigned>(options.cpu_index), &cores);
        ::pthread_setaffinity_np(::pthread_self(), sizeof(cores), &cores);
    }
    if (options.fifo_priority <= 0) {
        return false;
    }
    sched_param parameters{};
    parameters.sched_priority = options.fifo_priority;
    return ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &parameters) == 0;
}

}  // namespace

RtThread::RtThread(RtThreadOptions options, Body body, std::function<void()> wake) : wake_(std::move(wake)) {
    thread_ = std::thread([this, options = std::move(options), body = std::move(body)] {
        // Signals belong to the main thread's loop.
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        realtime_.store(apply_options(options), std::memory_order_relaxed);
        const hot_path::Scope hot;
        body(stop_);
    });
}

RtThread::~RtThread() {
    stop_.store(true, std::memory_order_release);
    if (wake_) {
        wake_();
    }
    thread_.join();
}

}  // namespace perceptd

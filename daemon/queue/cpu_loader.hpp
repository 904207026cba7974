// Loads and frees the CPU device's programs on a thread of its own: packing weights takes seconds, and so does giving
// gigabytes back. Owns the programs on their way in and out.
// A mutex guards the two lists: this is set-up, and the device's thread never comes here.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "queue/cpu_program.hpp"
#include "queue/device.hpp"

namespace perceptd::queue {

/// What loading came to.
struct CpuLoaded {
    DeviceHandle handle = 0;
    std::unique_ptr<CpuProgram> program;  ///< null: `status` and `reason` say why
    JobStatus status = JobStatus::Ok;
    std::string reason;
};

/// Threads: thread-bound to the queue's thread; `tell` is called on the loader's. The destructor waits for what is
/// being loaded.
class CpuLoader {
public:
    CpuLoader(const CpuDecoderOptions& options, std::function<void()> tell);
    ~CpuLoader();
    CpuLoader(const CpuLoader&) = delete;
    CpuLoader& operator=(const CpuLoader&) = delete;

    void load(DeviceHandle handle, const DecoderProgram& program);
    /// An answer that needs no loading, in order with the others.
    void answer(CpuLoaded loaded);
    void free(std::unique_ptr<CpuProgram> program);
    /// False: nothing has come. Without a lock then.
    [[nodiscard]] bool take(CpuLoaded& loaded);

private:
    struct Request {
        DeviceHandle handle = 0;
        DecoderProgram program;
        std::unique_ptr<CpuProgram> leaving;
    };
    void serve();
    [[nodiscard]] CpuLoaded loaded(const Request& request) const;

    CpuDecoderOptions options_;
    std::function<void()> tell_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Request> requests_;
    std::deque<CpuLoaded> answers_;
    std::atomic<bool> has_answers_{false};
    bool is_stopping_ = false;
    std::thread thread_;
};

}  // namespace perceptd::queue

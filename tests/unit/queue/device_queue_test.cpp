// The queue on devices that do what the test says: order, fences and their errors, cancel, reset, limits, death of a
// device.
#include "queue/device_queue.hpp"

#include <poll.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "base/clock.hpp"
#include "base/hot_path.hpp"
#include "unit/queue/fake_device.hpp"

using namespace perceptd;
using namespace perceptd::queue;
using fence::FenceState;

namespace {

constexpr std::int64_t kMs = 1'000'000;

std::size_t open_descriptors() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

/// A queue over fake devices, with one buffer and one program.
struct Fixture {
    explicit Fixture(std::size_t count = 1, DeviceQueueOptions options = {}, bool is_preemptive = false) {
        std::vector<std::unique_ptr<Device>> owned;
        for (std::size_t i = 0; i < count; ++i) {
            auto device = std::make_unique<fake::Device>("fake" + std::to_string(i), is_preemptive);
            devices.push_back(device.get());
            owned.push_back(std::move(device));
        }
        queue = std::make_unique<DeviceQueue>(std::move(owned), options);
        queue->on_completion = [this](const Completion& completion) {
            told[completion.id] = completion;
            ++told_count;
        };
        queue->on_device_lost = [this](std::size_t index, std::string_view reason) {
            lost.emplace_back(index, reason);
        };
        queue->on_buffer_gone = [this](BufferId gone) { gone_buffers.push_back(gone); };
        memory.reset(::memfd_create("queue test", MFD_CLOEXEC));
        REQUIRE(::ftruncate(memory.borrow(), 4096) == 0);
        buffer =
            queue->import_buffer({.fd = memory.borrow(), .size_bytes = 4096, .access = kAccessRead | kAccessWrite});
        program = queue->load(StandardProgram{});
        queue->dispatch();
    }

    Job job(JobClass job_class = JobClass::BestEffort) const {
        Job made;
        made.job_class = job_class;
        made.program = program;
        made.input_count = 1;
        made.inputs[0] = {buffer, 0, 64, UniqueFd(), fence::Fence::Kind::Pipe};
        made.output_count = 1;
        made.outputs[0] = {buffer, 64, 64, UniqueFd(), fence::Fence::Kind::Pipe};
        return made;
    }
    Submitted submit(Job made, bool wants_fence = false) {
        Submitted answer = queue->submit(std::move(made), wants_fence);
        REQUIRE(answer.status == Status::Ok);
        queue->dispatch();
        return answer;
    }
    JobStatus status(JobId id) { return told.count(id) != 0 ? told[id].status : JobStatus::Pending; }
    void settle() {
        for (pollfd entry{queue->fd(), POLLIN, 0}; ::poll(&entry, 1, 0) == 1;) {
            queue->dispatch();
        }
    }
    /// Until `id` has ended, in real time; for limits.
    void wait_for(JobId id) {
        for (int i = 0; i < 500 && status(id) == JobStatus::Pending; ++i) {
            pollfd entry{queue->fd(), POLLIN, 0};
            ::poll(&entry, 1, 20);
            queue->dispatch();
        }
    }

    std::vector<fake::Device*> devices;
    std::unique_ptr<DeviceQueue> queue;
    UniqueFd memory;
    BufferId buffer = 0;
    ProgramId program = 0;
    std::map<JobId, Completion> told;
    std::size_t told_count = 0;
    std::vector<std::pair<std::size_t, std::string>> lost;
    std::vector<BufferId> gone_buffers;
};

}  // namespace

TEST_CASE("A job runs, its fence is signalled and its completion told once") {
    Fixture test;
    Job made = test.job();
    made.cookie = 77;
    const Submitted answer = test.submit(std::move(made), true);
    REQUIRE(answer.fence.has_value());
    REQUIRE(test.devices[0]->held.size() == 1);
    CHECK(answer.fence->state() == FenceState::Pending);
    CHECK(test.status(answer.id) == JobStatus::Pending);
    test.devices[0]->end(answer.id, JobStatus::Ok, 5 * kMs);
    test.devices[0]->end(answer.id, JobStatus::Ok, 5 * kMs);  // a device that tells twice
    test.settle();
    CHECK(answer.fence->state() == FenceState::Signalled);
    CHECK(test.status(answer.id) == JobStatus::Ok);
    CHECK(test.told[answer.id].cookie == 77);
    CHECK(test.told[answer.id].device_ns == 5 * kMs);
    CHECK(test.told_count == 1);
}

TEST_CASE("Two jobs keep a device busy and the rest waits in order of deadline") {
    Fixture test;
    std::vector<JobId> ids;
    for (const std::int64_t in_ms : {900, 800, 700, 600}) {
        Job made = test.job(JobClass::Soft);
        made.deadline_ns = monotonic_ns() + in_ms * kMs * 10;
        ids.push_back(test.submit(std::move(made)).id);
    }
    REQUIRE(test.devices[0]->held.size() == 2);
    test.devices[0]->end(ids[0], JobStatus::Ok);
    test.settle();
    REQUIRE(test.devices[0]->held.size() == 2);
    CHECK(test.devices[0]->held[1].id == ids[3]);  // the soonest of those that waited
}

TEST_CASE("A job waits for all its fences without a thread") {
    Fixture test;
    fence::PipeFence first = fence::make_pipe_fence();
    fence::PipeFence second = fence::make_pipe_fence();
    Job made = test.job();
    made.inputs[0].acquire_fence.reset(::fcntl(first.fence.fd(), F_DUPFD_CLOEXEC, 3));
    made.outputs[0].acquire_fence.reset(::fcntl(second.fence.fd(), F_DUPFD_CLOEXEC, 3));
    const JobId id = test.submit(std::move(made)).id;
    CHECK(test.devices[0]->held.empty());
    fence::end_pipe(second.writer, true);
    test.settle();
    CHECK(test.devices[0]->held.empty());
    fence::end_pipe(first.writer, true);
    test.settle();
    REQUIRE(test.devices[0]->held.size() == 1);
    CHECK(test.devices[0]->held[0].id == id);
}

TEST_CASE("An eventfd is a fence too, good or lost") {
    Fixture test;
    for (const bool is_good : {true, false}) {
        UniqueFd event = make_event();
        Job made = test.job();
        made.inputs[0].acquire_fence = event.duplicate();
        made.inputs[0].acquire_kind = fence::Fence::Kind::EventFd;
        REQUIRE(fence::kind_of(event.borrow()) == fence::Fence::Kind::EventFd);
        const JobId id = test.submit(std::move(made)).id;
        const std::uint64_t count = is_good ? fence::kEventSignalled : fence::kEventLost;
        REQUIRE(::write(event.borrow(), &count, sizeof(count)) == sizeof(count));
        test.settle();
        CHECK(test.status(id) == (is_good ? JobStatus::Pending : JobStatus::DependencyLost));
    }
}

TEST_CASE("An error travels through fences to everything that depends on it, on other queues as well") {
    Fixture test;
    Fixture other;
    const Submitted root = test.submit(test.job(), true);
    std::vector<Submitted> chain;
    chain.reserve(6);  // fences are looked at in place
    const fence::Fence* before = &*root.fence;
    for (int i = 0; i < 6; ++i) {
        Fixture& on = i % 2 == 0 ? other : test;
        Job made = on.job();
        made.inputs[0].acquire_fence.reset(::fcntl(before->fd(), F_DUPFD_CLOEXEC, 3));
        chain.push_back(on.submit(std::move(made), true));
        before = &*chain.back().fence;
    }
    const Submitted apart = other.submit(other.job(), true);
    test.devices[0]->end(root.id, JobStatus::NotFinite);
    for (int i = 0; i < 8; ++i) {
        test.settle();
        other.settle();
    }
    CHECK(test.status(root.id) == JobStatus::NotFinite);
    for (std::size_t i = 0; i < chain.size(); ++i) {
        CHECK((i % 2 == 0 ? other : test).status(chain[i].id) == JobStatus::DependencyLost);
        CHECK(chain[i].fence->state() == FenceState::DeviceLost);
    }
    CHECK(other.status(apart.id) == JobStatus::Pending);
    CHECK(test.devices[0]->submissions + other.devices[0]->submissions == 2);
}

TEST_CASE("A fence that never comes is lost at its limit, and what is no fence is refused") {
    Fixture test(1, {.fence_limit_ns = 20 * kMs});
    fence::PipeFence never = fence::make_pipe_fence();
    Job made = test.job();
    made.inputs[0].acquire_fence.reset(::fcntl(never.fence.fd(), F_DUPFD_CLOEXEC, 3));
    const JobId id = test.submit(std::move(made)).id;
    test.wait_for(id);
    CHECK(test.status(id) == JobStatus::DependencyLost);
    CHECK(test.queue->counters().dependency_lost == 1);

    Job wrong = test.job();
    wrong.inputs[0].acquire_fence.reset(::fcntl(test.memory.borrow(), F_DUPFD_CLOEXEC, 3));
    CHECK(test.status(test.submit(std::move(wrong)).id) == JobStatus::Invalid);
    CHECK_FALSE(fence::kind_of(test.memory.borrow()).has_value());
    CHECK_FALSE(fence::kind_of(-1).has_value());
}

TEST_CASE("Cancel ends a job that waits at once and one that runs through its device") {
    Fixture test;
    fence::PipeFence never = fence::make_pipe_fence();
    Job waiting = test.job();
    waiting.inputs[0].acquire_fence.reset(::fcntl(never.fence.fd(), F_DUPFD_CLOEXEC, 3));
    const Submitted fenced = test.submit(std::move(waiting), true);
    const Submitted running = test.submit(test.job(), true);
    const Submitted behind = test.submit(test.job());
    const Submitted queued = test.submit(test.job());
    for (const JobId id : {fenced.id, running.id, queued.id, JobId{9999}, JobId{0}}) {
        REQUIRE(test.queue->cancel(id) == Status::Ok);
    }
    test.settle();
    CHECK(test.status(fenced.id) == JobStatus::Cancelled);
    CHECK(fenced.fence->state() == FenceState::DeviceLost);
    CHECK(test.status(running.id) == JobStatus::Cancelled);
    CHECK(running.fence->state() == FenceState::DeviceLost);
    CHECK(test.status(queued.id) == JobStatus::Cancelled);
    CHECK(test.status(behind.id) == JobStatus::Pending);
}

TEST_CASE("Reset ends every job and the queue goes on") {
    Fixture test;
    std::vector<JobId> ids;
    for (int i = 0; i < 5; ++i) {
        ids.push_back(test.submit(test.job()).id);
    }
    REQUIRE(test.queue->reset() == Status::Ok);
    test.settle();
    for (const JobId id : ids) {
        CHECK(test.status(id) == JobStatus::Cancelled);
    }
    const JobId next = test.submit(test.job()).id;
    test.devices[0]->end(next, JobStatus::Ok);
    test.settle();
    CHECK(test.status(next) == JobStatus::Ok);
}

TEST_CASE("A job whose device dies is run again on the next one, what waited there moves, and the session goes on") {
    Fixture test(2);
    const Submitted running = test.submit(test.job(), true);
    const Submitted behind = test.submit(test.job(), true);
    const Submitted queued = test.submit(test.job(), true);
    REQUIRE(test.devices[0]->held.size() == 2);
    test.devices[0]->die("SIGSEGV");
    test.settle();
    REQUIRE(test.lost.size() == 1);
    CHECK(test.lost[0] == std::pair<std::size_t, std::string>{0, "SIGSEGV"});
    REQUIRE(test.devices[1]->held.size() == 2);
    CHECK(test.devices[1]->held[0].inputs.size() == 1);
    for (const Submitted* job : {&running, &behind, &queued}) {
        test.devices[1]->end(job->id, JobStatus::Ok);
        test.settle();
        CHECK(test.status(job->id) == JobStatus::Ok);
        CHECK(test.told[job->id].device_index == 1);
        CHECK(job->fence->state() == FenceState::Signalled);
    }
    CHECK(test.queue->counters().rerun == 3);
    const JobId later = test.submit(test.job()).id;
    CHECK(test.devices[1]->held.size() == 1);
    test.devices[1]->end(later, JobStatus::Ok);
    test.settle();

    // It comes back empty and is filled again.
    CHECK_FALSE(test.queue->revive(0));
    test.devices[0]->comes_back = true;
    REQUIRE(test.queue->revive(0));
    CHECK(test.devices[0]->buffers.size() == 1);
    CHECK(test.devices[0]->programs.size() == 1);
    test.settle();
    static_cast<void>(test.submit(test.job()));
    CHECK(test.devices[0]->held.size() == 1);
}

TEST_CASE("Without another device the job ends as DeviceLost, and so do later ones") {
    Fixture test;
    const Submitted running = test.submit(test.job(), true);
    test.devices[0]->die();
    test.settle();
    CHECK(test.status(running.id) == JobStatus::DeviceLost);
    CHECK(running.fence->state() == FenceState::DeviceLost);
    CHECK(test.status(test.submit(test.job()).id) == JobStatus::DeviceLost);
}

TEST_CASE("A device that hangs is given up at its limit, deaf or not") {
    for (const bool is_deaf : {false, true}) {
        Fixture test(2, {.job_limit_ns = 20 * kMs});
        test.devices[0]->is_deaf = is_deaf;
        test.devices[1]->ends_at_once = true;
        const JobId id = test.submit(test.job()).id;
        test.wait_for(id);
        CHECK(test.status(id) == JobStatus::Ok);
        CHECK(test.told[id].device_index == 1);
        REQUIRE(test.lost.size() == 1);
        CHECK(test.queue->counters().devices_lost == 1);
    }
}

TEST_CASE("A job that its owner cancels while its device dies is not run again") {
    Fixture test(2);
    test.devices[0]->is_deaf = true;
    const JobId id = test.submit(test.job()).id;
    REQUIRE(test.queue->cancel(id) == Status::Ok);
    test.settle();
    CHECK(test.status(id) == JobStatus::Pending);
    test.devices[0]->die();
    test.settle();
    CHECK(test.status(id) == JobStatus::Cancelled);
    CHECK(test.devices[1]->submissions == 0);
}

TEST_CASE("Wrong ids, ranges and rights end as Invalid before a device sees them") {
    Fixture test;
    const BufferId input_only =
        test.queue->import_buffer({.fd = test.memory.borrow(), .size_bytes = 4096, .access = kAccessRead});
    const auto status_with = [&](auto&& change) {
        Job made = test.job();
        change(made);
        return test.status(test.submit(std::move(made)).id);
    };
    CHECK(status_with([](Job& j) { j.inputs[0].buffer = 12345; }) == JobStatus::Invalid);
    CHECK(status_with([](Job& j) { j.inputs[0].buffer = 0; }) == JobStatus::Invalid);
    CHECK(status_with([](Job& j) { j.inputs[0].offset_bytes = 4097; }) == JobStatus::Invalid);
    CHECK(status_with([](Job& j) { j.inputs[0].size_bytes = 0; }) == JobStatus::Invalid);
    CHECK(status_with([](Job& j) {
              j.inputs[0] = {j.inputs[0].buffer, UINT64_MAX - 1, 64, UniqueFd(), fence::Fence::Kind::Pipe};
          }) == JobStatus::Invalid);
    CHECK(status_with([](Job& j) { j.outputs[0].offset_bytes = 4095; }) == JobStatus::Invalid);
    CHECK(status_with([&](Job& j) { j.outputs[0].buffer = input_only; }) == JobStatus::Invalid);
    CHECK(status_with([](Job& j) { j.program = 999; }) == JobStatus::Invalid);
    CHECK(status_with([](Job& j) { j.job_class = JobClass::Hard; }) == JobStatus::Invalid);
    CHECK(status_with([](Job& j) { j.flow = 4; }) == JobStatus::Invalid);
    Job many = test.job();
    many.input_count = 9;
    CHECK(test.queue->submit(std::move(many), false).status == Status::Invalid);
    CHECK(test.devices[0]->submissions == 0);
}

TEST_CASE("Buffers and programs stay until the last job that uses them") {
    Fixture test;
    const JobId id = test.submit(test.job()).id;
    CHECK_FALSE(test.queue->release_buffer(test.buffer));
    CHECK_FALSE(test.queue->unload(test.program));
    CHECK(test.devices[0]->buffers.size() == 1);
    CHECK(test.status(test.submit(test.job()).id) == JobStatus::Invalid);  // it is leaving: nothing new
    CHECK(test.gone_buffers.empty());
    test.devices[0]->end(id, JobStatus::Ok);
    test.settle();
    CHECK(test.devices[0]->buffers.empty());
    CHECK(test.devices[0]->programs.empty());
    CHECK(test.gone_buffers == std::vector<BufferId>{test.buffer});
    CHECK_FALSE(test.queue->release_buffer(test.buffer));
}

TEST_CASE("A job waits for its program to be loaded; a fault of all devices ends it") {
    Fixture test(2);
    for (fake::Device* device : test.devices) {
        device->loads_at_once = false;
    }
    std::vector<JobStatus> answers;
    test.queue->on_program = [&](ProgramId, JobStatus status, std::string_view) { answers.push_back(status); };
    Job made = test.job();
    made.program = test.queue->load(StandardProgram{});
    const JobId id = test.submit(std::move(made)).id;
    test.devices[0]->answer_load(test.devices[0]->programs.back(), JobStatus::NoMemory);
    test.settle();
    CHECK(test.status(id) == JobStatus::Pending);
    CHECK(answers.empty());
    test.devices[1]->answer_load(test.devices[1]->programs.back(), JobStatus::Ok);
    test.settle();
    CHECK(answers == std::vector<JobStatus>{JobStatus::Ok});
    CHECK(test.devices[1]->held.size() == 1);

    Job other = test.job();
    other.program = test.queue->load(StandardProgram{});
    const JobId lost = test.submit(std::move(other)).id;
    for (fake::Device* device : test.devices) {
        device->answer_load(device->programs.back(), JobStatus::Invalid);
    }
    test.settle();
    CHECK(answers.back() == JobStatus::Invalid);
    CHECK(test.status(lost) == JobStatus::Unsupported);

    test.devices[0]->takes_programs = false;
    test.devices[1]->takes_programs = false;
    CHECK_THROWS_AS(test.queue->load(StandardProgram{}), Error);
    test.devices[0]->takes_buffers = false;
    test.devices[1]->takes_buffers = false;
    CHECK_THROWS_AS(test.queue->import_buffer({.fd = test.memory.borrow(), .size_bytes = 1, .access = kAccessRead}),
                    Error);
}

TEST_CASE("Hard jobs need an admitted flow and have its rank and time on a preemptive device") {
    Fixture test(1, {}, true);
    const AdmissionVerdict verdict = test.queue->open_flow({JobClass::Hard, 10 * kMs, 10 * kMs, kMs, kMs, 0});
    REQUIRE(verdict.flow != 0);
    CHECK(test.queue->open_flow({JobClass::Hard, 10 * kMs, 10 * kMs, 10 * kMs, kMs, 0}).flow == 0);
    static_cast<void>(test.submit(test.job()));
    static_cast<void>(test.submit(test.job()));
    Job made = test.job(JobClass::Hard);
    made.flow = verdict.flow;
    const JobId id = test.submit(std::move(made)).id;
    REQUIRE(test.devices[0]->held.size() == 3);  // beyond the depth: it overtakes
    CHECK(test.devices[0]->held[2].id == id);
    CHECK(test.devices[0]->held[2].rank < test.devices[0]->held[0].rank);
    CHECK(test.devices[0]->held[2].grant_ns == kMs);
    test.devices[0]->spend(id, kMs);
    test.settle();
    REQUIRE(test.devices[0]->grants.size() == 1);
    CHECK(test.devices[0]->grants[0] == std::pair<JobId, std::int64_t>{id, kUnlimitedNs});
    CHECK(test.queue->scheduler(0).counters(JobClass::Hard).overruns == 1);
    test.queue->close_flow(verdict.flow);
    CHECK(test.queue->open_flow({JobClass::Hard, 10 * kMs, 10 * kMs, 7 * kMs, kMs, 0}).flow != 0);
}

TEST_CASE("More jobs than the queue holds are refused and leave their giver's fences alone") {
    Fixture test(1, {.jobs_max = 4});
    for (int i = 0; i < 4; ++i) {
        REQUIRE(test.queue->submit(test.job(), false).status == Status::Ok);
    }
    fence::PipeFence pipe = fence::make_pipe_fence();
    Job made = test.job();
    made.inputs[0].acquire_fence.reset(::fcntl(pipe.fence.fd(), F_DUPFD_CLOEXEC, 3));
    CHECK(test.queue->submit(std::move(made), true).status == Status::Full);
    CHECK(made.inputs[0].acquire_fence);
    test.settle();
    test.devices[0]->end(test.devices[0]->held[0].id, JobStatus::Ok);
    test.settle();
    CHECK(test.queue->submit(std::move(made), true).status == Status::Ok);
}

TEST_CASE("A device that takes fewer jobs than it says is asked again after its next event") {
    Fixture test;
    test.devices[0]->room = 1;
    const JobId first = test.submit(test.job()).id;
    const JobId second = test.submit(test.job()).id;
    CHECK(test.devices[0]->held.size() == 1);
    test.devices[0]->end(first, JobStatus::Ok);
    test.settle();
    REQUIRE(test.devices[0]->held.size() == 1);
    CHECK(test.devices[0]->held[0].id == second);
}

TEST_CASE("Fences of jobs under way are lost when the queue goes, seen or not") {
    std::optional<fence::Fence> running;
    std::optional<fence::Fence> unseen;
    {
        Fixture test;
        running = std::move(*test.submit(test.job(), true).fence);
        unseen = std::move(*test.queue->submit(test.job(), true).fence);
    }
    CHECK(running->state() == FenceState::DeviceLost);
    CHECK(unseen->state() == FenceState::DeviceLost);
}

namespace {

/// Jobs in chains of two with fences, to the end: no allocation, no descriptor more than before.
void run_jobs(std::size_t count) {
    Fixture test;
    test.queue->on_completion = [&](const Completion& completion) {
        test.told_count += completion.status == JobStatus::Ok;
    };
    test.devices[0]->ends_at_once = true;
    const auto round = [&] {
        Submitted first = test.queue->submit(test.job(), true);
        Job second = test.job();
        second.inputs[0].acquire_fence = first.fence->release();
        Submitted last = test.queue->submit(std::move(second), true);
        for (int i = 0; i < 4; ++i) {
            test.queue->dispatch();
        }
        return last.fence.has_value() && last.fence->state() == FenceState::Signalled;
    };
    REQUIRE(round());
    const std::size_t descriptors = open_descriptors();
    const std::uint64_t allocations = hot_path::allocation_count();
    std::size_t good = 0;
    {
        const hot_path::Scope hot;
        for (std::size_t i = 0; i < count / 2; ++i) {
            good += round() ? 1 : 0;
        }
    }
    CHECK(good == count / 2);
    CHECK(test.told_count == count / 2 * 2 + 2);
    CHECK(hot_path::allocation_count() == allocations);
    CHECK(open_descriptors() == descriptors);
}

}  // namespace

TEST_CASE("Twenty thousand jobs with fences: no allocation, no descriptor more") {
    run_jobs(20'000);
}

TEST_CASE("A million jobs with fences: no allocation, no descriptor more", "[.nightly]") {
    run_jobs(1'000'000);
}

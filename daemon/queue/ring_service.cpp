#include "queue/ring_service.hpp"

#include <sys/epoll.h>

#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/event_fd.hpp"

namespace perceptd::queue {
namespace {

constexpr int kBurst = 16;                        // entries of one ring in one pass
constexpr std::uint32_t kIdleBellsMax = 100'000;  // in a row, without a submission
constexpr std::size_t kAnswersMax = 4096;
constexpr std::uint64_t kWakeTag = RingService::kRingsMax;
constexpr std::uint64_t kSlotBits = 8;

std::size_t slot_of(RingId id) noexcept {
    return id & ((1U << kSlotBits) - 1);
}

void watch(int epoll, int bell, std::uint64_t tag) {
    epoll_event event{};
    // Edge-triggered: every ring is an edge, so nobody has to read the count.
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = tag;
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, bell, &event) != 0) {
        throw_errno("epoll_ctl");
    }
}

}  // namespace

RingService::RingService(const RingServiceOptions& options, RingHandler& handler)
    : handler_(handler),
      answers_(kAnswersMax),
      spin_(std::thread::hardware_concurrency() > 1 ? options.spin_limit_us : 0),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_bell_(make_event()) {
    if (!epoll_) {
        throw_errno("epoll_create1");
    }
    watch(epoll_.borrow(), wake_bell_.borrow(), kWakeTag);
    thread_ = std::make_unique<RtThread>(
        RtThreadOptions{.name = "job-rings", .fifo_priority = options.fifo_priority, .cpu_index = options.cpu_index},
        [this](const std::atomic<bool>& stop) { serve(stop); }, [this] { signal_event(wake_bell_.borrow()); });
}

RingService::~RingService() {
    thread_.reset();
}

RingId RingService::add(std::unique_ptr<JobRing> ring) {
    for (std::size_t i = 0; i < kRingsMax; ++i) {
        Slot& slot = slots_[i];
        if (slot.owned != nullptr) {
            continue;
        }
        watch(epoll_.borrow(), ring->submission_bell(), i);
        const RingId id = (next_generation_++ << kSlotBits) | i;
        slot.idle_bells.store(0, std::memory_order_relaxed);
        slot.is_broken = false;
        slot.owned = std::move(ring);
        slot.id.store(id, std::memory_order_relaxed);
        slot.ring.store(slot.owned.get(), std::memory_order_release);
        // It may hold submissions already; and its own bell rings only for who has said that he sleeps.
        signal_event(wake_bell_.borrow());
        return id;
    }
    throw Error(ErrorCode::Busy, "all " + std::to_string(kRingsMax) + " job rings are in use; use the channel instead");
}

void RingService::remove(RingId id) noexcept {
    if (slot_of(id) >= kRingsMax) {
        return;
    }
    Slot& slot = slots_[slot_of(id)];
    if (slot.owned == nullptr || slot.id.load(std::memory_order_relaxed) != id) {
        return;
    }
    slot.ring.store(nullptr, std::memory_order_seq_cst);
    // A pass that began before this may still use the ring: two more counts mean that one has begun after it.
    const std::uint64_t before = pass_count_.load(std::memory_order_seq_cst);
    while (pass_count_.load(std::memory_order_acquire) < before + 2) {
        signal_event(wake_bell_.borrow());
        std::this_thread::yield();
    }
    slot.owned.reset();  // closes its bell, and with it epoll's interest
}

bool RingService::complete(RingId ring, const percept_job_completion& completion) noexcept {
    if (!answers_.push({ring, completion})) {
        return false;
    }
    wake();
    return true;
}

void RingService::wake() noexcept {
    // An exchange on both sides: either the sleeper sees the answer that was pushed before, or this sees the sleeper.
    if (is_sleeping_.exchange(false, std::memory_order_acq_rel)) {
        signal_event(wake_bell_.borrow());
    }
}

void RingService::serve(const std::atomic<bool>& stop) noexcept {
    std::uint32_t idle_rounds = 0;
    std::uint32_t spin_rounds = spin_.rounds();
    while (!stop.load(std::memory_order_relaxed)) {
        if (serve_all()) {
            spin_.found_after(idle_rounds);
        } else if (idle_rounds < spin_rounds) {
            ++idle_rounds;
            spin_pause();
            continue;
        } else {
            sleep();
        }
        idle_rounds = 0;
        spin_rounds = spin_.rounds();
    }
}

bool RingService::serve_all() noexcept {
    bool has_worked = write_answers();
    for (Slot& slot : slots_) {
        JobRing* const ring = slot.ring.load(std::memory_order_acquire);
        if (ring != nullptr && !slot.is_broken) {
            has_worked |= serve_slot(slot, *ring);
        }
    }
    pass_count_.store(pass_count_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    return has_worked;
}

bool RingService::serve_slot(Slot& slot, JobRing& ring) noexcept {
    percept_job_entry entry;
    for (int i = 0; i < kBurst; ++i) {
        const RingResult result = ring.take(entry);
        if (result == RingResult::Nothing) {
            return i > 0;
        }
        if (result == RingResult::Broken) {
            give_up(slot, "a submission has the stamp of another place");
            return true;
        }
        slot.idle_bells.store(0, std::memory_order_relaxed);
        job_count_.store(job_count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        std::uint32_t status = PERCEPT_JOB_DONE;
        if (fault_of(entry) != nullptr) {
            status = PERCEPT_JOB_INVALID;
        } else if (entry.program_id != 0) {
            status = handler_.on_job(slot.id.load(std::memory_order_relaxed), entry);
        }
        if (status != 0) {
            answer(slot, ring, {.job_id = entry.job_id, .status = status});
        }
    }
    return true;
}

bool RingService::write_answers() noexcept {
    Answer item;
    bool has_worked = false;
    while (answers_.pop(item)) {
        has_worked = true;
        const std::size_t index = slot_of(item.ring);
        if (index >= kRingsMax) {
            continue;
        }
        Slot& slot = slots_[index];
        JobRing* const ring = slot.ring.load(std::memory_order_acquire);
        if (ring != nullptr && !slot.is_broken && slot.id.load(std::memory_order_relaxed) == item.ring) {
            answer(slot, *ring, item.completion);
        }
    }
    return has_worked;
}

void RingService::answer(Slot& slot, JobRing& ring, const percept_job_completion& completion) noexcept {
    if (ring.complete(completion) != RingResult::Ok) {
        give_up(slot, "the count of completions that were read is impossible");
    }
}

void RingService::give_up(Slot& slot, const char* reason) noexcept {
    slot.is_broken = true;
    handler_.on_broken(slot.id.load(std::memory_order_relaxed), reason);
}

void RingService::sleep() noexcept {
    const std::int64_t start_ns = monotonic_ns();
    is_sleeping_.exchange(true, std::memory_order_acq_rel);
    for (Slot& slot : slots_) {
        if (JobRing* const ring = slot.ring.load(std::memory_order_acquire)) {
            ring->announce_sleep();
        }
    }
    std::array<epoll_event, 16> events;
    // The look after the announcement: who wrote before it did not ring.
    const int count = serve_all() ? 0 : ::epoll_wait(epoll_.borrow(), events.data(), int(events.size()), -1);
    for (int i = 0; i < count; ++i) {
        const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
        if (tag < kRingsMax && slots_[tag].idle_bells.fetch_add(1, std::memory_order_relaxed) + 1 == kIdleBellsMax &&
            slots_[tag].ring.load(std::memory_order_acquire) != nullptr) {
            give_up(slots_[tag], "it rings and rings and submits nothing");
        }
    }
    for (Slot& slot : slots_) {
        if (JobRing* const ring = slot.ring.load(std::memory_order_acquire)) {
            ring->withdraw_sleep();
        }
    }
    is_sleeping_.store(false, std::memory_order_relaxed);
    spin_.slept(monotonic_ns() - start_ns);
}

}  // namespace perceptd::queue

#include "queue/run_queue.hpp"

namespace perceptd::queue {
namespace {

std::int64_t sum(std::int64_t a_ns, std::int64_t b_ns) noexcept {
    return b_ns > kUnlimitedNs - a_ns ? kUnlimitedNs : a_ns + b_ns;
}

}  // namespace

std::size_t RunQueue::add(JobId id, const Rank& rank, std::int64_t grant_ns) noexcept {
    if (id == 0 || find(id) != kNone) {
        return kNone;
    }
    const std::size_t place = find(0);
    if (place != kNone) {
        held_[place] = {.id = id, .rank = rank, .granted_ns = grant_ns, .order = ++arrivals_};
    }
    return place;
}

void RunQueue::grant(JobId id, const Rank& rank, std::int64_t grant_ns) noexcept {
    if (const std::size_t place = id == 0 ? kNone : find(id); place != kNone) {
        held_[place].rank = rank;
        held_[place].granted_ns = sum(held_[place].ran_ns, grant_ns);
    }
}

std::size_t RunQueue::next() const noexcept {
    std::size_t best = kNone;
    for (std::size_t i = 0; i < held_.size(); ++i) {
        const Held& job = held_[i];
        if (job.id == 0) {
            continue;
        }
        if (job.ran_ns < job.granted_ns && (best == kNone || job.rank < held_[best].rank ||
                                            (job.rank == held_[best].rank && job.order < held_[best].order))) {
            best = i;
        }
    }
    return best;
}

bool RunQueue::charge(std::size_t place, std::int64_t ran_ns) noexcept {
    Held& job = held_[place];
    const bool had_time = job.ran_ns < job.granted_ns;
    job.ran_ns = sum(job.ran_ns, ran_ns);
    return had_time && job.ran_ns >= job.granted_ns;
}

std::size_t RunQueue::find(JobId id) const noexcept {
    for (std::size_t i = 0; i < held_.size(); ++i) {
        if (held_[i].id == id) {
            return i;
        }
    }
    return kNone;
}

}  // namespace perceptd::queue

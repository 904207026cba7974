// One job ring with both of its halves in this process, and a look at the memory as a hostile client has it.
// Owns both halves and a mapping of its own.
// Never used outside tests.
#pragma once

#include <memory>

#include "base/mapped_region.hpp"
#include "job_ring.hpp"
#include "queue/job_ring.hpp"

namespace ring_test {

class RingPair {
public:
    explicit RingPair(std::uint32_t spin_limit_us = 0) : daemon_(std::make_unique<perceptd::queue::JobRing>("test")) {
        auto end = daemon_->take_client_end();
        mapping_ =
            perceptd::MappedRegion(end.memory.borrow(), sizeof(percept_job_ring), perceptd::MapAccess::ReadWrite);
        bell_ = end.submission_bell.duplicate();
        memory_ = end.memory.duplicate();
        client_ = std::make_unique<percept::JobRing>(percept::UniqueFd(end.memory.release()),
                                                     percept::UniqueFd(end.submission_bell.release()),
                                                     percept::UniqueFd(end.completion_bell.release()), spin_limit_us);
    }

    [[nodiscard]] perceptd::queue::JobRing& daemon() { return *daemon_; }
    [[nodiscard]] std::unique_ptr<perceptd::queue::JobRing> take_daemon() { return std::move(daemon_); }
    [[nodiscard]] percept::JobRing& client() { return *client_; }
    [[nodiscard]] percept_job_ring& raw() { return *reinterpret_cast<percept_job_ring*>(mapping_.data()); }
    [[nodiscard]] int bell() const { return bell_.borrow(); }
    [[nodiscard]] int memory() const { return memory_.borrow(); }

private:
    std::unique_ptr<perceptd::queue::JobRing> daemon_;
    std::unique_ptr<percept::JobRing> client_;
    perceptd::MappedRegion mapping_;
    perceptd::UniqueFd bell_;
    perceptd::UniqueFd memory_;
};

}  // namespace ring_test

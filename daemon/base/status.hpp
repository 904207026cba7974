// The outcome of a real-time operation. Real-time code reports with this and never throws.
#pragma once

#include <cstdint>

namespace perceptd {

enum class [[nodiscard]] Status : std::uint8_t {
    Ok,
    Again,      ///< nothing now; try after the next wake-up
    Full,       ///< no room or no free slot; the caller counts the loss
    Late,       ///< the item came after its window had closed
    Duplicate,  ///< the item was seen before
    Invalid,    ///< the item breaks its contract (range, order, size)
    Stale,      ///< the slot's generation has moved on
    Ended,      ///< the stream is over
    NotFinite,  ///< a computation met a NaN or an infinity; its results are void
};

/// The name of `status` in lower snake case, for logs and listings.
constexpr const char* name_of(Status status) noexcept {
    switch (status) {
        case Status::Ok: return "ok";
        case Status::Again: return "again";
        case Status::Full: return "full";
        case Status::Late: return "late";
        case Status::Duplicate: return "duplicate";
        case Status::Invalid: return "invalid";
        case Status::Stale: return "stale";
        case Status::Ended: return "ended";
        case Status::NotFinite: return "not_finite";
    }
    return "unknown";
}

}  // namespace perceptd

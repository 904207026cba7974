// Writes into the ledger who opened sessions and who held which sensor from when to when. Owns the entries that are
// open. Never waits: the store's thread does the writing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "session/authority.hpp"
#include "session/delivery.hpp"
#include "store/store.hpp"

namespace perceptd {

/// Thread-bound (main thread).
class UsageBook {
public:
    /// `store` outlives it.
    explicit UsageBook(store::Store& store) : store_(store) {}

    void session_opened(const session::Peer& peer);
    void held(std::uint64_t session_id, const session::Peer& peer, session::SensorSet sensors);
    /// Sensors that the session did not hold are passed over.
    void left(std::uint64_t session_id, session::SensorSet sensors) noexcept;
    /// The sensors have gone from under everybody who held them.
    void lost(session::SensorSet sensors) noexcept;

private:
    using Key = std::pair<std::uint64_t, sensor::Kind>;
    using Row = std::shared_ptr<std::int64_t>;  ///< its number, known to the store's thread alone

    void end(const Row& row) noexcept;

    store::Store& store_;
    std::map<Key, Row> open_;
};

}  // namespace perceptd

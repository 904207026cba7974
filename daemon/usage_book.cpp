#include "usage_book.hpp"

#include <exception>
#include <fstream>
#include <string>

#include "base/log.hpp"
#include "sensor/source.hpp"

namespace perceptd {
namespace {

/// The name of the program as the kernel knows it now; empty where it cannot be seen.
std::string program_of(pid_t pid) {
    std::string name;
    if (pid > 0) {
        std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
        std::getline(comm, name);
    }
    return name;
}

}  // namespace

void UsageBook::session_opened(const session::Peer& peer) {
    store_.post([uid = peer.uid](store::StoreTables& tables) { tables.ledger.add_session(uid, store::wall_ms()); });
}

void UsageBook::held(std::uint64_t session_id, const session::Peer& peer, session::SensorSet sensors) {
    const std::string program = program_of(peer.pid);
    for (const sensor::Kind kind : sensor::kKinds) {
        if (!sensors.has(kind)) {
            continue;
        }
        const auto row = std::make_shared<std::int64_t>(0);
        store::SensorUse use{.uid = peer.uid,
                             .pid = static_cast<std::uint32_t>(peer.pid),
                             .program = program,
                             .sensor = word_of(kind),
                             .from_ms = store::wall_ms()};
        store_.post([row, use](store::StoreTables& tables) { *row = tables.ledger.begin_sensor_use(use); });
        open_[{session_id, kind}] = row;
    }
}

void UsageBook::end(const Row& row) noexcept {
    try {
        store_.post([row, now_ms = store::wall_ms()](store::StoreTables& tables) {
            if (*row != 0) {  // else the beginning could not be written
                tables.ledger.end_sensor_use(*row, now_ms);
            }
        });
    } catch (const std::exception& error) {
        log::error("store", error.what());
    }
}

void UsageBook::left(std::uint64_t session_id, session::SensorSet sensors) noexcept {
    for (const sensor::Kind kind : sensor::kKinds) {
        const auto known = open_.find({session_id, kind});
        if (sensors.has(kind) && known != open_.end()) {
            end(known->second);
            open_.erase(known);
        }
    }
}

void UsageBook::lost(session::SensorSet sensors) noexcept {
    std::erase_if(open_, [&](const auto& item) {
        const bool is_lost = sensors.has(item.first.second);
        if (is_lost) {
            end(item.second);
        }
        return is_lost;
    });
}

}  // namespace perceptd

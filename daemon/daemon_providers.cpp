// The daemon's side of provider processes: sensors that come, start, and go with a session.
#include <exception>

#include "base/log.hpp"
#include "daemon.hpp"

namespace perceptd {

using sensor::Kind;

session::Provision Daemon::provide(std::uint64_t session_id, const sensor::Offer& offer) {
    session::Provision provision = bank_.provide(
        session_id, offer, [this, session_id](const sensor::FeedRun& run) { start_provider(session_id, run); });
    provider_faults_[session_id] =
        loop_.add_io(bank_.provider(session_id)->fault_fd(), EPOLLIN, [this, session_id](std::uint32_t) {
            provider_faults_[session_id]->set_events(0);
            if (session::Session* const session = sessions_.find(session_id)) {
                session->close(session::EndCause::Protocol, "the provider's records are mostly invalid");
            }
        });
    return provision;
}

void Daemon::provider_ready(std::uint64_t session_id) {
    bank_.provider_ready(session_id);
    log::info("sensor", bank_.provider(session_id)->offer().origin + " is there");
    tell_sensors_changed();
}

void Daemon::provider_gone(std::uint64_t session_id) noexcept {
    // After the current dispatch: its windows may be under delivery right now.
    try {
        loop_.defer([this, session_id] { end_provider(session_id); });
    } catch (const std::exception&) {
        // The loop has ended: the destructor takes everything down.
    }
}

void Daemon::end_provider(std::uint64_t session_id) {
    const sensor::FeedSource* const source = bank_.provider(session_id);
    if (source == nullptr) {
        return;
    }
    const std::string text = source->offer().origin + " is gone; subscribe in a new session when it is back";
    const session::SensorSet kinds = bank_.provider_kinds(session_id);
    log::info("sensor", text);
    if (pipeline_ && kinds.intersects(held_kinds())) {
        // What was closed before still counts.
        WindowRecord record;
        while (pipeline_->pop(record)) {
            deliver(record);
        }
        stop_pipeline();
        schedule_restart();
    }
    for (const Kind kind : sensor::kKinds) {
        if (kinds.has(kind)) {
            holders_[sensor::index_of(kind)] = 0;
        }
    }
    desk_.book().lost(kinds);
    sessions_.lose(kinds, text);
    provider_faults_.erase(session_id);
    started_providers_.erase(session_id);
    bank_.end_provider(session_id);
    tell_sensors_changed();
}

void Daemon::tell_sensors_changed() {
    if (sensors_changed_) {
        sensors_changed_();
    }
}

void Daemon::start_provider(std::uint64_t session_id, const sensor::FeedRun& run) {
    session::SensorSet kinds;
    for (const Kind kind : sensor::kKinds) {
        if (run.is_on[sensor::index_of(kind)]) {
            kinds.add(kind);
        }
    }
    started_providers_.insert(session_id);
    if (session::Session* const session = sessions_.find(session_id)) {
        session->start_provider(kinds, run.run, run.hub_start_ns);
    }
}

}  // namespace perceptd

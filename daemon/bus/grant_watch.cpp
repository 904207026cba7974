#include "bus/grant_watch.hpp"

#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace perceptd::bus {
namespace {

constexpr std::int64_t kGatherNs = 50 * kNsPerMs;  // polkit says "changed" several times in a row
constexpr std::int64_t kRetryNs = 2 * kNsPerSecond;
constexpr std::uint32_t kDoubtsMax = 3;

}  // namespace

GrantWatch::GrantWatch(EventLoop& loop, PolkitAuthority& polkit, session::Registry& sessions)
    : polkit_(polkit), sessions_(sessions) {
    timer_ = loop.add_timer([this] {
        is_scheduled_ = false;
        look();
    });
    polkit_.on_changed([this, alive = std::weak_ptr<char>(alive_)] {
        if (!alive.expired()) {
            doubt_count_ = 0;
            schedule(kGatherNs);
        }
    });
}

void GrantWatch::schedule(std::int64_t after_ns) {
    if (!is_scheduled_) {
        timer_->arm_at(monotonic_ns() + after_ns);
        is_scheduled_ = true;
    }
}

void GrantWatch::look() {
    is_in_doubt_ = false;
    std::vector<std::uint64_t> ids;  // an answer may come at once and end a session
    sessions_.for_each([&ids](session::Session& session) { ids.push_back(session.id()); });
    for (const std::uint64_t id : ids) {
        session::Session* const session = sessions_.find(id);
        const std::vector<std::string> actions =
            session != nullptr ? session->granted_actions() : std::vector<std::string>();
        if (!actions.empty()) {
            polkit_.recheck(
                session->peer(), actions,
                [this, id, alive = std::weak_ptr<char>(alive_)](session::Verdict verdict, const std::string& denied) {
                    if (!alive.expired()) {
                        decided(id, verdict, denied);
                    }
                });
        }
    }
}

void GrantWatch::decided(std::uint64_t session_id, session::Verdict verdict, const std::string& denied) {
    if (verdict == session::Verdict::Granted) {
        return;
    }
    if (verdict == session::Verdict::Unavailable) {
        doubt_count_ += std::exchange(is_in_doubt_, true) ? 0 : 1;  // once per look, however many sessions it covers
        if (doubt_count_ < kDoubtsMax) {
            schedule(kRetryNs);
            return;
        }
    }
    log::warning("bus", "session " + std::to_string(session_id) + " loses " + denied);
    sessions_.revoke(session_id);
}

}  // namespace perceptd::bus

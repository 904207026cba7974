// Looks again at what live sessions were granted when polkit says that its answers may have changed.
// Owns its timer.
// Never leaves a sensor on in doubt: a grant that cannot be confirmed in a few tries is gone.
#pragma once

#include <cstdint>
#include <memory>

#include "base/event_loop.hpp"
#include "bus/polkit_authority.hpp"
#include "session/registry.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). Everything given to it must outlive it.
class GrantWatch {
public:
    GrantWatch(EventLoop& loop, PolkitAuthority& polkit, session::Registry& sessions);

private:
    void schedule(std::int64_t after_ns);
    void look();
    void decided(std::uint64_t session_id, session::Verdict verdict, const std::string& denied);

    PolkitAuthority& polkit_;
    session::Registry& sessions_;
    std::unique_ptr<EventSource> timer_;
    bool is_scheduled_ = false;
    bool is_in_doubt_ = false;       ///< polkit did not answer during this look
    std::uint32_t doubt_count_ = 0;  ///< looks since polkit's last change that it did not answer
    std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace perceptd::bus

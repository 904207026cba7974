// How many sessions and unreleased windows a user may have, so that no user can starve another.
// Owns the counts.
// Never waits: a claim is granted at once or refused with limit and use.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>
#include <utility>

namespace perceptd::session {

/// The limits; from the configuration.
struct QuotaLimits {
    std::uint32_t sessions_total = 64;
    std::uint32_t sessions_per_uid = 8;
    uid_t owner_uid = static_cast<uid_t>(-1);  ///< the daemon's own user: only the total binds it
    std::uint32_t windows_per_session = 8;     ///< unreleased
    std::uint32_t windows_per_uid = 24;        ///< unreleased, over all sessions of the user
};

/// Thread-bound (main thread). Must outlive its claims.
class Quota {
public:
    explicit Quota(QuotaLimits limits) noexcept : limits_(limits) {}
    Quota(const Quota&) = delete;
    Quota& operator=(const Quota&) = delete;

    /// One session of one user and the windows it holds; everything is given back on destruction. Move-only.
    class [[nodiscard]] Claim {
    public:
        Claim() noexcept = default;
        Claim(Claim&& other) noexcept
            : quota_(std::exchange(other.quota_, nullptr)),
              uid_(other.uid_),
              window_count_(std::exchange(other.window_count_, 0)) {}
        Claim& operator=(Claim&& other) noexcept;
        ~Claim() { end(); }

        /// False when the session or its user holds as many windows as it may.
        [[nodiscard]] bool take_window() noexcept;
        void give_window() noexcept;
        [[nodiscard]] std::uint32_t window_count() const noexcept { return window_count_; }
        void end() noexcept;

    private:
        friend class Quota;
        Claim(Quota* quota, uid_t uid) noexcept : quota_(quota), uid_(uid) {}

        Quota* quota_ = nullptr;
        uid_t uid_ = 0;
        std::uint32_t window_count_ = 0;
    };

    /// Throws Error(QuotaExceeded) with limit and used.
    Claim open_session(uid_t uid);

    [[nodiscard]] const QuotaLimits& limits() const noexcept { return limits_; }
    [[nodiscard]] std::uint32_t session_count() const noexcept { return session_count_; }

private:
    struct Use {
        std::uint32_t session_count = 0;
        std::uint32_t window_count = 0;
    };

    QuotaLimits limits_;
    std::uint32_t session_count_ = 0;
    std::unordered_map<uid_t, Use> use_by_uid_;
};

}  // namespace perceptd::session

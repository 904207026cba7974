// Quota: refusals say limit and use, and everything claimed comes back.
#include "session/quota.hpp"

#include <catch2/catch.hpp>
#include <optional>

#include "base/error.hpp"

using namespace perceptd;
using namespace perceptd::session;

TEST_CASE("sessions are limited per user and in total") {
    Quota quota({.sessions_total = 3, .sessions_per_uid = 2});
    std::optional<Quota::Claim> first = quota.open_session(1);
    const Quota::Claim second = quota.open_session(1);
    try {
        static_cast<void>(quota.open_session(1));
        FAIL("a third session of one user was granted");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::QuotaExceeded);
        CHECK(error.limit == 2u);
        CHECK(error.used == 2u);
    }
    const Quota::Claim third = quota.open_session(2);
    CHECK_THROWS_AS(static_cast<void>(quota.open_session(3)), Error);
    first.reset();
    CHECK(quota.session_count() == 2);
    CHECK_NOTHROW(static_cast<void>(quota.open_session(1)));
}

TEST_CASE("a user who fills its share locks neither others nor the daemon's own user out") {
    Quota quota({.sessions_total = 4, .sessions_per_uid = 2, .owner_uid = 7});
    const Quota::Claim idle_a = quota.open_session(65534);
    const Quota::Claim idle_b = quota.open_session(65534);
    CHECK_THROWS_AS(quota.open_session(65534), Error);
    const Quota::Claim own_a = quota.open_session(7);
    const Quota::Claim own_b = quota.open_session(7);
    CHECK_THROWS_AS(quota.open_session(7), Error);  // the total binds everybody
}

TEST_CASE("windows are limited per session and per user, and end with the claim") {
    Quota quota({.windows_per_session = 2, .windows_per_uid = 3});
    Quota::Claim other = quota.open_session(1);
    {
        Quota::Claim claim = quota.open_session(1);
        CHECK(claim.take_window());
        CHECK(claim.take_window());
        CHECK_FALSE(claim.take_window());
        CHECK(other.take_window());
        CHECK_FALSE(other.take_window());
    }
    CHECK(other.take_window());
}

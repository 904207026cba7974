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

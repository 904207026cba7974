// The guard: whatever a handler throws becomes a D-Bus error, and the bus goes on.
#include "bus/errors.hpp"

#include <catch2/catch.hpp>
#include <system_error>

using namespace perceptd;
using namespace perceptd::bus;

namespace {

/// The sdbus::Error that a property's getter ends with.
template <typename Body>
sdbus::Error error_of(Body body) {
    try {
        guard_property(body);
    } catch (const sdbus::Error& error) {
        return error;
    }
    return sdbus::Error("none", "");
}

}  // namespace

TEST_CASE("an error keeps its noun, its reason and its numbers") {
    Error error(ErrorCode::QuotaExceeded, "too many sessions; close one");
    error.limit = 4;
    error.used = 5;
    error.retry_after_ms = 250;
    const sdbus::Error seen = error_of([&] { throw error; });
    CHECK(seen.getName() == "org.perceptd1.Error.QuotaExceeded");
    CHECK(seen.getMessage() == "too many sessions; close one (limit 4, used 5, retry after 250 ms)");
    CHECK(bus_error(Error(ErrorCode::NotFound, "no such session")).getMessage() == "no such session");
}

TEST_CASE("every code has a name of its own that D-Bus accepts") {
    std::vector<std::string> names;
    for (int code = 1; code <= static_cast<int>(ErrorCode::InvalidConfiguration); ++code) {
        names.push_back(error_name(static_cast<ErrorCode>(code)));
        CHECK(names.back().rfind("org.perceptd1.Error.", 0) == 0);
    }
    std::sort(names.begin(), names.end());
    CHECK(std::unique(names.begin(), names.end()) == names.end());
}

TEST_CASE("nothing but sdbus::Error leaves a getter") {
    CHECK(error_of([] { throw std::runtime_error("broken"); }).getName() == "org.perceptd1.Error.Internal");
    CHECK(error_of([] { throw std::bad_alloc(); }).getName() == "org.perceptd1.Error.Internal");
    CHECK(error_of([] { throw std::system_error(EMFILE, std::generic_category()); }).getName() ==
          "org.perceptd1.Error.Internal");
    CHECK(error_of([] { throw 42; }).getName() == "org.perceptd1.Error.Internal");
    CHECK(error_of([] {}).getName() == "none");
}

TEST_CASE("an event's handler may throw anything") {
    guard_event("a test", [] { throw std::runtime_error("broken"); });
    guard_event("a test", [] { throw 42; });
    bool ran = false;
    guard_event("a test", [&ran] { ran = true; });
    CHECK(ran);
}

// OpenSession's options: what the contract names is taken, all else is refused with the reason.
#include "bus/open_options.hpp"

#include <catch2/catch.hpp>
#include <functional>

#include "base/error.hpp"
#include "support/private_bus.hpp"

using namespace perceptd;
using namespace perceptd::bus;
using sensor::Kind;
using Options = std::vector<std::pair<std::string, sdbus::Variant>>;

namespace {

/// A message that carries the options, as a caller would send it: keys in any order and number.
class Caller {
public:
    session::Registry::OpenOptions read(const Options& options) {
        sdbus::MethodCall call = proxy_->createMethodCall("org.perceptd1.Manager", "OpenSession");
        call.openContainer("{sv}");
        for (const auto& [key, value] : options) {
            call.openDictEntry("sv");
            call << key << value;
            call.closeDictEntry();
        }
        call.closeContainer();
        call.seal();
        call.rewind(true);
        return read_open_options(call);
    }
    /// The text of the refusal; empty when it was not refused.
    std::string refusal(const Options& options) {
        try {
            static_cast<void>(read(options));
            return {};
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::InvalidArgument);
            return error.what();
        }
    }

private:
    test::PrivateBus bus_;
    std::unique_ptr<sdbus::IConnection> connection_ = sdbus::createSessionBusConnectionWithAddress(bus_.address());
    std::unique_ptr<sdbus::IProxy> proxy_ = sdbus::createProxy(*connection_, "org.perceptd1", "/org/perceptd1");
};

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

const std::vector<std::string> kTwo{"imu", "camera"};

}  // namespace

TEST_CASE("the options that the contract names are read") {
    Caller caller;
    const auto none = caller.read({});
    CHECK(none.granted.empty());
    CHECK(none.windows_in_flight_max == 0);
    CHECK(none.label.empty());
    const auto all = caller.read(
        {{"label", std::string("walk \xC3\xA9")}, {"windows-in-flight", std::uint32_t{3}}, {"sensors", kTwo}});
    CHECK(all.granted.has(Kind::Camera));
    CHECK(all.granted.has(Kind::Imu));
    CHECK_FALSE(all.granted.has(Kind::Microphone));
    CHECK(all.windows_in_flight_max == 3);
    CHECK(all.label == "walk \xC3\xA9");
    CHECK(caller.read({{"label", std::string(64, 'x')}}).label.size() == 64);
    CHECK(caller.read({{"sensors", std::vector<std::string>{}}}).granted.empty());
}

TEST_CASE("everything else is refused, and the refusal names what was wrong") {
    Caller caller;
    CHECK(holds(caller.refusal({{"model", std::string("x")}}), "'model'"));
    CHECK(holds(caller.refusal({{"", std::string("x")}}), "''"));
    CHECK(holds(caller.refusal({{"sensors", std::string("camera")}}), "type 's'; give it type 'as'"));
    CHECK(holds(caller.refusal({{"windows-in-flight", std::int32_t{3}}}), "give it type 'u'"));
    CHECK(holds(caller.refusal({{"windows-in-flight", std::uint32_t{0}}}), "at least 1"));
    CHECK(holds(caller.refusal({{"sensors", std::vector<std::string>{"camera", "lidar"}}}), "'lidar'"));
    CHECK(holds(caller.refusal({{"label", std::string(65, 'x')}}), "65 bytes"));
    CHECK(holds(caller.refusal({{"label", std::string("a\nb")}}), "control"));
    CHECK(holds(caller.refusal({{"label", std::string("a\x7F")}}), "control"));
    CHECK(holds(caller.refusal({{"label", std::string("\xC2\x9B"
                                                      "31m")}}),
                "control"));
    CHECK(holds(caller.refusal({{"label", std::string("a")}, {"label", std::string("b")}}), "twice"));
}

TEST_CASE("a refusal quotes a long word in part, and never breaks a character") {
    Caller caller;
    std::string key(63, 'k');
    for (int i = 0; i < 100; ++i) {
        key += "\xF0\x9F\x98\x80";
    }
    const std::string text = caller.refusal({{key, std::string("x")}});
    CHECK(text.size() < 200);
    CHECK(holds(text, std::string(63, 'k') + "...'"));
}

// A provider's half of the session protocol: refused, out of order, dead at each stage.
#include <sys/eventfd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "session_fixture.hpp"

using namespace perceptd;
using namespace perceptd::session;
using namespace perceptd::session::test;
using State = Session::State;

namespace {

/// Takes any provider in, or refuses; remembers what happened.
class ProviderFeed : public FakeFeed {
public:
    std::optional<ErrorCode> refusal;
    int provided_count = 0;
    int ready_count = 0;
    int gone_count = 0;
    sensor::Offer offered;

    Provision provide(std::uint64_t, const sensor::Offer& given) override {
        if (refusal) {
            throw Error(*refusal, "no");
        }
        offered = given;
        ++provided_count;
        const auto descriptor = [] { return UniqueFd(::eventfd(0, EFD_CLOEXEC)); };
        Provision provision{.ring_fd = descriptor(), .ring_bytes = 99, .doorbell_fd = descriptor()};
        provision.camera = ProvidedSlots{descriptor(), 8, 4096, 4000};
        return provision;
    }
    void provider_ready(std::uint64_t) override { ++ready_count; }
    void provider_gone(std::uint64_t) noexcept override { ++gone_count; }
};

struct ProviderStage {
    FakeAuthority authority;
    ProviderFeed feed;
    Quota quota{{}};
    std::optional<Client> client;
    std::unique_ptr<Session> session;

    explicit ProviderStage(std::int64_t handshake_deadline_ns = 0) {
        ChannelPair pair = make_channel_pair();
        client.emplace(std::move(pair.client_end));
        session = std::make_unique<Session>(Session::Options{.id = 7, .handshake_deadline_ns = handshake_deadline_ns},
                                            Channel(std::move(pair.daemon_end)), quota.open_session(1000), authority,
                                            feed, Session::Handlers{});
        client->hello();
        session->handle_ready();
        client->read();
    }
    static v1::ClientMessage offer() {
        v1::ClientMessage message;
        v1::Provide& provide = *message.mutable_provide();
        provide.set_origin("test");
        provide.set_camera_stamps(v1::STAMP_KIND_LATCHED);
        provide.mutable_camera()->set_width_px(64);
        provide.mutable_camera()->set_height_px(48);
        provide.mutable_camera()->set_stride_bytes(64);
        provide.mutable_camera()->set_rate_hz(30);
        return message;
    }
    v1::ServerMessage say(const v1::ClientMessage& message) {
        client->send_bytes(message.SerializeAsString());
        session->handle_ready();
        return client->read();
    }
    void say_ready() {
        v1::ClientMessage message;
        message.mutable_provider_ready();
        client->send_bytes(message.SerializeAsString());
        session->handle_ready();
    }
};

}  // namespace

TEST_CASE("a provider is asked for, provisioned, started and stopped") {
    ProviderStage stage;
    const v1::ServerMessage answer = stage.say(ProviderStage::offer());
    REQUIRE(answer.has_provision());
    CHECK(stage.authority.asked == std::vector<std::string>{"org.perceptd1.manage"});
    CHECK(stage.client->fd_count == 3);
    CHECK(answer.provision().feed_bytes() == 99);
    CHECK(answer.provision().camera().slot_count() == 8);
    CHECK_FALSE(answer.provision().has_audio());
    CHECK(stage.feed.offered.camera->width_px == 64);
    CHECK(stage.feed.offered.stamp_kind[0] == sensor::StampKind::Latched);
    CHECK(stage.session->state() == State::Mapping);
    stage.say_ready();
    CHECK(stage.session->state() == State::Providing);
    CHECK(stage.feed.ready_count == 1);
    SensorSet kinds;
    kinds.add(sensor::Kind::Camera);
    stage.session->start_provider(kinds, 3, 1234);
    const v1::ServerMessage start = stage.client->read();
    REQUIRE(start.has_start());
    CHECK(start.start().run() == 3);
    CHECK(start.start().hub_start_ns() == 1234);
    CHECK(start.start().sensors_size() == 1);
    stage.session->stop_provider();
    CHECK(stage.client->read().has_stop());
    stage.session->close(EndCause::Requested, "test");
    CHECK(stage.feed.gone_count == 1);
}

TEST_CASE("a provider that dies is gone exactly once, at every stage") {
    const int stage_of_death = GENERATE(0, 1, 2, 3);
    const bool by_garbage = GENERATE(false, true);
    const std::size_t before = open_fd_count();
    {
        ProviderStage stage;
        if (stage_of_death == 1) {
            stage.authority.verdict.reset();  // still being asked
        }
        if (stage_of_death >= 1) {
            stage.say(ProviderStage::offer());
        }
        if (stage_of_death == 3) {
            stage.say_ready();
        }
        if (by_garbage) {
            stage.client->send_bytes("\xff\xff\xff");
        } else {
            stage.client->close();
        }
        stage.session->handle_ready();
        CHECK(stage.session->state() == State::Closed);
        CHECK(stage.feed.gone_count == stage.feed.provided_count);
        CHECK(stage.feed.provided_count == (stage_of_death >= 2 ? 1 : 0));
        if (stage.authority.kept) {
            stage.authority.kept(Verdict::Granted, "");  // the answer comes after its asker
        }
        CHECK(stage.feed.provided_count == (stage_of_death >= 2 ? 1 : 0));
    }
    CHECK(open_fd_count() == before);
}

TEST_CASE("refusals leave a provider's session ready for another try") {
    ProviderStage stage;
    SECTION("not authorised") {
        stage.authority.verdict = Verdict::Denied;
        const v1::ServerMessage answer = stage.say(ProviderStage::offer());
        CHECK(answer.error().code() == v1::ERROR_CODE_NOT_AUTHORIZED);
        CHECK_FALSE(answer.error().fatal());
        stage.authority.verdict = Verdict::Granted;
    }
    SECTION("the authority is silent") {
        stage.authority.verdict = Verdict::Unavailable;
        CHECK(stage.say(ProviderStage::offer()).error().code() == v1::ERROR_CODE_AUTHORITY_UNAVAILABLE);
        stage.authority.verdict = Verdict::Granted;
    }
    SECTION("another provider is there") {
        stage.feed.refusal = ErrorCode::Busy;
        CHECK(stage.say(ProviderStage::offer()).error().code() == v1::ERROR_CODE_BUSY);
        stage.feed.refusal.reset();
    }
    SECTION("an impossible offer") {
        v1::ClientMessage message = ProviderStage::offer();
        message.mutable_provide()->mutable_camera()->set_width_px(0);
        const v1::ServerMessage answer = stage.say(message);
        CHECK(answer.error().code() == v1::ERROR_CODE_INVALID_ARGUMENT);
        CHECK_FALSE(answer.error().fatal());
        CHECK(stage.feed.provided_count == 0);
    }
    CHECK(stage.say(ProviderStage::offer()).has_provision());
    CHECK(stage.feed.gone_count == 0);
}

TEST_CASE("a provider's messages out of order end its session") {
    ProviderStage stage;
    SECTION("ready before anything") {
        stage.say_ready();
    }
    SECTION("ready twice") {
        stage.say(ProviderStage::offer());
        stage.say_ready();
        stage.say_ready();
    }
    SECTION("offered twice") {
        stage.say(ProviderStage::offer());
        stage.say(ProviderStage::offer());
    }
    SECTION("a client that provides") {
        stage.client->subscribe({v1::SENSOR_CAMERA});
        stage.session->handle_ready();
        stage.say(ProviderStage::offer());
    }
    CHECK(stage.session->state() == State::Closed);
    CHECK(stage.session->end_cause() == EndCause::Protocol);
    CHECK(stage.feed.gone_count == stage.feed.provided_count);
}

TEST_CASE("a provider that never maps its memory times out") {
    ProviderStage stage(1000);
    stage.say(ProviderStage::offer());
    stage.session->check_deadline(999);
    CHECK(stage.session->state() == State::Mapping);
    stage.session->check_deadline(1000);
    CHECK(stage.session->end_cause() == EndCause::Timeout);
    CHECK(stage.feed.gone_count == 1);
}

TEST_CASE("a lost sensor leaves its sessions what they hold and sends no more of it") {
    Stage stage;
    stage.stream();
    stage.session->deliver(stage.window(1));
    stage.client->read();
    SensorSet camera;
    camera.add(sensor::Kind::Camera);
    stage.session->lose(camera, "gone");
    const v1::ServerMessage notice = stage.client->read();
    REQUIRE(notice.has_notice());
    CHECK(notice.notice().kind() == v1::NOTICE_KIND_SENSOR_LOST);
    CHECK(stage.session->windows_in_flight() == 1);
    CHECK(stage.camera.free_count() == 7);
    stage.session->deliver(stage.window(2));
    CHECK(stage.client->read().body_case() == v1::ServerMessage::BODY_NOT_SET);
    stage.client->release(1);
    stage.session->handle_ready();
    CHECK(stage.camera.free_count() == 8);
    stage.session->lose(camera, "again");
    CHECK(stage.client->read().body_case() == v1::ServerMessage::BODY_NOT_SET);
}

TEST_CASE("Bye is answered with the final statistics") {
    Stage stage;
    stage.stream();
    stage.session->deliver(stage.window(1));
    stage.client->read();
    v1::ClientMessage bye;
    bye.mutable_bye();
    stage.client->send_bytes(bye.SerializeAsString());
    stage.session->handle_ready();
    const v1::ServerMessage notice = stage.client->read();
    REQUIRE(notice.has_notice());
    CHECK(notice.notice().kind() == v1::NOTICE_KIND_SESSION_END);
    CHECK(notice.notice().statistics().windows_sent_count() == 1);
    CHECK(stage.client->at_end());
}

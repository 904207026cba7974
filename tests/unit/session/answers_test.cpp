// What a session makes of questions and answers: rights, bounds, clients that do not read.
#include <catch2/catch.hpp>
#include <map>

#include "base/clock.hpp"
#include "session_fixture.hpp"

namespace perceptd::session {
namespace {

using generate::AnswerLog;
using generate::Begun;
using generate::FinishReason;
using generate::Piece;

/// Keeps the replies until the test gives them.
class FakeAnswers : public Answers {
public:
    std::vector<generate::Question> questions;
    std::vector<std::pair<std::uint64_t, generate::Answering::Reply>> replies;  ///< with the id that was resumed, or 0
    std::vector<std::uint64_t> stopped;
    std::vector<std::uint32_t> uids;

    void ask(std::uint32_t uid, generate::Question question, generate::Answering::Reply reply) override {
        uids.push_back(uid);
        questions.push_back(std::move(question));
        replies.emplace_back(0, std::move(reply));
    }
    void resume(std::uint32_t, std::uint64_t id, generate::Answering::Reply reply) override {
        replies.emplace_back(id, std::move(reply));
    }
    void stop(std::uint32_t, std::uint64_t id) override { stopped.push_back(id); }

    void begin(std::size_t index, std::uint64_t id, const std::shared_ptr<AnswerLog>& log) {
        const Begun begun{.id = id,
                          .thread = id,
                          .prompt_tokens = 3,
                          .tokens_max = 5000,
                          .context_tokens_max = 8192,
                          .seed = 9,
                          .log = log};
        replies.at(index).second(&begun, nullptr);
    }
};

struct Desk : test::Stage {
    FakeAnswers answers;

    explicit Desk(Session::Options options = {}) : Stage({}, std::move(options)) {
        feed.answering = &answers;
        client->hello();
        session->handle_ready();
        client->read();
    }
    ~Desk() { session.reset(); }

    void ask(std::uint64_t request, const std::string& text = "hello") {
        v1::ClientMessage message;
        message.mutable_generate()->set_request_id(request);
        message.mutable_generate()->set_model("small");
        message.mutable_generate()->set_prompt(text);
        client->send_bytes(message.SerializeAsString());
        session->handle_ready();
    }
    void resume(std::uint64_t request, std::uint64_t id, std::uint64_t number) {
        v1::ClientMessage message;
        message.mutable_resume()->set_request_id(request);
        message.mutable_resume()->set_generation_id(id);
        message.mutable_resume()->set_next_number(number);
        client->send_bytes(message.SerializeAsString());
        session->handle_ready();
    }
};

void say(AnswerLog& log, const std::vector<std::uint32_t>& tokens, FinishReason finish = FinishReason::None) {
    Piece piece{.tokens = tokens, .finish = finish};
    for (const std::uint32_t token : tokens) {
        piece.text += static_cast<char>('a' + token % 26);
        piece.text_ends.push_back(piece.text.size());
    }
    log.append(piece, {log.token_count() + tokens.size(), 1000});
}

}  // namespace

TEST_CASE("a question needs the right to ask, once, and goes out as it came") {
    Desk desk;
    desk.authority.verdict = std::nullopt;
    desk.ask(1);
    desk.ask(2);
    CHECK(desk.authority.asked == std::vector<std::string>{"org.perceptd1.infer"});
    CHECK(desk.answers.questions.empty());
    CHECK(desk.session->granted_actions().empty());
    desk.authority.kept(Verdict::Granted, "");
    REQUIRE(desk.answers.questions.size() == 2);
    CHECK(desk.answers.questions[0].text == "hello");
    CHECK(desk.answers.uids[0] == desk.session->peer().uid);
    CHECK(desk.session->granted_actions() == std::vector<std::string>{"org.perceptd1.infer"});
    desk.authority.asked.clear();
    desk.ask(3);
    CHECK(desk.authority.asked.empty());
    CHECK(desk.answers.questions.size() == 3);
}

TEST_CASE("a denial refuses the questions and leaves the session as it was") {
    Desk desk;
    for (const Verdict verdict : {Verdict::Denied, Verdict::Unavailable}) {
        desk.authority.verdict = verdict;
        desk.ask(5);
        const v1::ServerMessage refused = desk.client->read();
        REQUIRE(refused.has_generation_refused());
        CHECK(refused.generation_refused().request_id() == 5);
        CHECK(refused.generation_refused().error().code() ==
              (verdict == Verdict::Denied ? v1::ERROR_CODE_NOT_AUTHORIZED : v1::ERROR_CODE_AUTHORITY_UNAVAILABLE));
    }
    CHECK(desk.answers.questions.empty());
    desk.authority.verdict = Verdict::Granted;
    desk.client->subscribe({v1::SENSOR_CAMERA});
    desk.session->handle_ready();
    CHECK(desk.session->state() == Session::State::Streaming);
}

TEST_CASE("an answer travels beside the windows, each token once, in order, with its end") {
    Desk desk;
    desk.ask(1);
    const auto log = std::make_shared<AnswerLog>();
    say(*log, {1, 2});
    desk.answers.begin(0, 77, log);
    const v1::ServerMessage begun = desk.client->read();
    REQUIRE(begun.has_generation_begun());
    CHECK(begun.generation_begun().generation_id() == 77);
    CHECK(begun.generation_begun().seed() == 9);
    v1::ServerMessage part = desk.client->read();
    REQUIRE(part.has_token());
    CHECK(part.token().token_ids_size() == 2);
    CHECK(part.token().text() == "bc");
    CHECK(!part.token().has_headroom());
    CHECK(desk.client->read().body_case() == v1::ServerMessage::BODY_NOT_SET);
    say(*log, {3}, FinishReason::StopToken);
    desk.session->pump_answers();
    part = desk.client->read();
    CHECK(part.token().first_number() == 2);
    CHECK(part.token().finish() == v1::FINISH_REASON_STOP_TOKEN);
    CHECK(part.token().headroom().used_tokens() == 3);
    CHECK(part.token().headroom().capacity_tokens() == 1000);
    desk.session->pump_answers();
    CHECK(desk.client->read().body_case() == v1::ServerMessage::BODY_NOT_SET);  // it is over
}

TEST_CASE("the levels of a context are told once each, when they are reached") {
    Desk desk;
    desk.ask(1);
    const auto log = std::make_shared<AnswerLog>();
    desk.answers.begin(0, 77, log);
    desk.client->read();
    std::vector<int> levels;
    for (int i = 0; i < 100; ++i) {
        say(*log, std::vector<std::uint32_t>(10, 4));
        desk.session->pump_answers();
        const v1::ServerMessage part = desk.client->read();
        if (part.token().has_headroom()) {
            levels.push_back(part.token().headroom().level());
            CHECK(part.token().headroom().used_tokens() == (levels.size() == 1 ? 750U : 900U));
        }
    }
    CHECK(levels == std::vector<int>{v1::HEADROOM_LEVEL_SOFT, v1::HEADROOM_LEVEL_HARD});
}

TEST_CASE("a client that does not read holds nothing up, and gets every token later") {
    Desk desk;
    desk.ask(1);
    const auto log = std::make_shared<AnswerLog>();
    desk.answers.begin(0, 77, log);
    std::uint32_t said = 0;
    for (; said < 5000; ++said) {
        say(*log, {said}, said == 4999 ? FinishReason::TokensMax : FinishReason::None);
        desk.session->pump_answers();
    }
    CHECK(desk.session->wants_write());
    CHECK(desk.session->state() != Session::State::Closed);
    std::uint32_t heard = 0;
    bool is_begun = false;
    for (int turn = 0; turn < 10'000 && heard < said; ++turn) {
        const v1::ServerMessage message = desk.client->read();
        if (message.body_case() == v1::ServerMessage::BODY_NOT_SET) {
            desk.session->handle_ready();  // there is room in the socket
            continue;
        }
        is_begun = is_begun || message.has_generation_begun();
        for (const std::uint32_t token : message.token().token_ids()) {
            REQUIRE(token == heard);
            ++heard;
        }
    }
    CHECK(is_begun);
    CHECK(heard == said);
    CHECK(!desk.session->wants_write());
}

TEST_CASE("two readers of one answer have places of their own; one that knows more than there is waits") {
    Desk desk;
    Desk other;
    const auto log = std::make_shared<AnswerLog>();
    say(*log, {1, 2, 3, 4});
    desk.resume(1, 77, 1);
    other.resume(2, 77, 6);  // it was told more before the power went
    desk.answers.begin(0, 77, log);
    other.answers.begin(0, 77, log);
    CHECK(desk.client->read().generation_begun().next_number() == 1);
    CHECK(desk.client->read().token().token_ids_size() == 3);
    CHECK(other.client->read().generation_begun().next_number() == 6);
    CHECK(other.client->read().body_case() == v1::ServerMessage::BODY_NOT_SET);
    say(*log, {5, 6, 7}, FinishReason::Cancelled);
    desk.session->pump_answers();
    other.session->pump_answers();
    CHECK(desk.client->read().token().token_ids_size() == 3);
    const v1::ServerMessage last = other.client->read();
    CHECK(last.token().first_number() == 6);
    CHECK(last.token().token_ids_size() == 1);
    CHECK(last.token().finish() == v1::FINISH_REASON_CANCELLED);
    desk.resume(3, 77, 5001);
    desk.answers.begin(1, 77, log);
    CHECK(desk.client->read().generation_refused().error().code() == v1::ERROR_CODE_INVALID_ARGUMENT);
}

TEST_CASE("a session has few questions on their way and few answers to read") {
    Desk desk;
    for (std::uint64_t request = 0; request < 5; ++request) {
        desk.ask(request);
    }
    v1::ServerMessage refused = desk.client->read();
    REQUIRE(refused.has_generation_refused());
    CHECK(refused.generation_refused().request_id() == 4);
    CHECK(refused.generation_refused().error().limit() == 4);
    for (std::uint64_t id = 1; id <= 8; ++id) {
        if (id > 4) {
            desk.ask(10 + id);
        }
        desk.answers.begin(id - 1, id, std::make_shared<AnswerLog>());
        CHECK(desk.client->read().has_generation_begun());
    }
    desk.ask(99);
    refused = desk.client->read();
    CHECK(refused.generation_refused().error().limit() == 8);
    v1::ClientMessage stop;
    stop.mutable_stop_generation()->set_generation_id(3);
    desk.client->send_bytes(stop.SerializeAsString());
    desk.session->handle_ready();
    CHECK(desk.answers.stopped == std::vector<std::uint64_t>{3});  // stopping is always allowed
}

TEST_CASE("a reply that comes when the session has gone is nobody's, and a question before Hello ends the session") {
    FakeAnswers answers;
    {
        Desk desk;
        desk.feed.answering = &answers;
        desk.ask(1);
        REQUIRE(answers.replies.size() == 1);
    }
    answers.begin(0, 5, std::make_shared<AnswerLog>());
    test::Stage early;
    v1::ClientMessage message;
    message.mutable_generate()->set_prompt("x");
    early.client->send_bytes(message.SerializeAsString());
    early.session->handle_ready();
    CHECK(early.session->state() == Session::State::Closed);
}

TEST_CASE("a client that only asks is no idler; one that was refused is") {
    for (const Verdict verdict : {Verdict::Granted, Verdict::Denied}) {
        Desk desk({.handshake_deadline_ns = 100});
        desk.authority.verdict = verdict;
        desk.ask(1);
        desk.session->check_deadline(101);
        CHECK((desk.session->state() == Session::State::Closed) == (verdict == Verdict::Denied));
    }
}

TEST_CASE("without models every question is refused in words") {
    Desk desk;
    desk.feed.answering = nullptr;
    desk.ask(1);
    CHECK(desk.client->read().generation_refused().error().code() == v1::ERROR_CODE_UNSUPPORTED);
}

}  // namespace perceptd::session
